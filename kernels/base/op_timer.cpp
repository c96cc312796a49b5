#include "kernels/base/op_timer.h"

namespace megalith {

void OpTimer::begin(const char* name) {
  if (used_ == launches_.size()) launches_.emplace_back();
  launches_[used_].name = name;
  device::record(launches_[used_].begin.get(), stream_);
}

void OpTimer::end() { device::record(launches_[used_++].end.get(), stream_); }

void OpTimer::collect(const std::function<void(const char*, double)>& add) {
  for (size_t i = 0; i < used_; i++)
    add(launches_[i].name, device::seconds_between(launches_[i].begin.get(), launches_[i].end.get()));
  used_ = 0;
}

}  // namespace megalith
