// Measures each op on the GPU with events around every launch of a stream. The host reads them after it has waited.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "kernels/stream/device.h"

namespace megalith {

class OpTimer {
 public:
  explicit OpTimer(CUstream_st* stream) : stream_(stream) {}

  // Call these around a launch.
  void begin(const char* name) {
    if (used_ == launches_.size()) launches_.emplace_back();
    launches_[used_].name = name;
    device::record(launches_[used_].begin.get(), stream_);
  }
  void end() { device::record(launches_[used_++].end.get(), stream_); }

  // Calls add(name, seconds) for each launch since the last call. The stream must have passed them all.
  void collect(const std::function<void(const char* name, double seconds)>& add) {
    for (size_t i = 0; i < used_; i++)
      add(launches_[i].name, device::seconds_between(launches_[i].begin.get(), launches_[i].end.get()));
    used_ = 0;
  }

 private:
  struct Launch {
    const char* name = nullptr;
    device::OwnedEvent begin = device::make_timed_event(), end = device::make_timed_event();
  };
  CUstream_st* stream_;
  std::vector<Launch> launches_;  // the first used_ are launches since the last collect(); the others are for reuse
  size_t used_ = 0;
};

}  // namespace megalith
