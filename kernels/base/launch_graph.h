// Ops that a Stream launches over and over (Stream::replay), and what a GPU can be given of them as one launch: a CUDA
// graph, whose kernels have the arguments that they had when it was captured. So it is for ops whose arguments are the
// same each time, addresses and numbers; whoever calls replay() answers for that.
//
// The first time nothing is captured: libraries make their choices, and what is launched is noted. The second time it
// is captured and held against the notes. Where it launches anything else, or the same ops write elsewhere, it is
// refused: launched op by op from then on. What ops read, and numbers that they are given, is in no note.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/base/cost.h"
#include "kernels/base/device.h"
#include "kernels/base/tensor.h"

namespace megalith {

// What was launched, in order.
class LaunchNotes {
 public:
  void add(const char* name, const Cost& cost, std::span<const Tensor> written);
  int64_t launches() const { return static_cast<int64_t>(launched_.size()); }
  // Summed per op.
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
  // Of fewer ops the host is as fast without: a graph's launch costs it as much as one or two of theirs.
  static constexpr int64_t least = 4;

  enum class State : uint8_t { fresh, noted, captured, refused };
  State state() const { return state_; }

 private:
  friend class Stream;
  State state_ = State::fresh;
  std::optional<LaunchNotes> notes_;
  device::OwnedGraph graph_;
};

// What a Stream has launched as graphs.
struct GraphCounts {
  int64_t graphs = 0;  // launches of graphs
  int64_t ops = 0;     // in them
  GraphCounts operator-(const GraphCounts& b) const { return {graphs - b.graphs, ops - b.ops}; }
  bool operator==(const GraphCounts&) const = default;
};

}  // namespace megalith
