// Ops that a Stream launches repeatedly (Stream::replay). A GPU can run them as one CUDA graph, with the arguments of
// its capture. The arguments, both addresses and numbers, must therefore be the same each time; the caller of replay()
// guarantees it.
//
// The first time the ops are launched and noted, while libraries choose their kernels. The second time they are
// captured and compared with the notes; if other ops were launched, or they write elsewhere, they are launched one by
// one from then on. The notes hold neither what ops read nor their numeric arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/stream/cost.h"
#include "kernels/stream/device.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// Notes the launches, in order.
class LaunchNotes {
 public:
  void add(const char* name, const Cost& cost, std::span<const Tensor> written);
  int64_t launches() const { return static_cast<int64_t>(launched_.size()); }
  // The launches summed per op.
  const std::vector<OpRecord>& ops() const { return ops_; }
  bool same_as(const LaunchNotes& other) const { return launched_ == other.launched_ && written_ == other.written_; }

 private:
  struct Launched {
    const char* name;
    Cost cost;
    bool operator==(const Launched&) const = default;
  };
  std::vector<Launched> launched_;
  std::vector<const void*> written_;
  std::vector<OpRecord> ops_;
};

class LaunchGraph {
 public:
  // Launching a graph costs the host as much as one or two ops, so it needs at least this many to pay.
  static constexpr int64_t least = 4;

  enum class Status : uint8_t { fresh, noted, captured, refused };
  Status status() const { return status_; }

 private:
  friend class Stream;
  Status status_ = Status::fresh;
  std::optional<LaunchNotes> notes_;
  device::OwnedGraph graph_;
};

// The graphs that a Stream has launched.
struct GraphCounts {
  int64_t graphs = 0;  // launches
  int64_t ops = 0;     // ops in all those launches
  GraphCounts operator-(const GraphCounts& b) const { return {graphs - b.graphs, ops - b.ops}; }
  bool operator==(const GraphCounts&) const = default;
};

}  // namespace megalith
