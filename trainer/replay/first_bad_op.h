// Finds the first op of a training step whose output is not finite.
//
// The order is that of one rank that does the whole step: each microbatch in the order of its sequences, from the
// embedding to the head and back, where each layer's gradients of matrices come last; then the gradients' sums; then
// the update. So every layout and every schedule names the same op, unless its sums round differently. A transfer's
// sum that is not finite is found in the op that reads it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "kernels/stream/op_watcher.h"
#include "kernels/stream/stream.h"
#include "trainer/layout/plan.h"
#include "trainer/program/program.h"

namespace megalith {

struct BadOp {
  // Orders ops by the microbatch's first sequence (or beyond the batch), the part of the pass and the number in it.
  std::array<int64_t, 3> place{};
  std::string op;           // "linear_forward"
  std::string part;         // "the forward pass of block 3"
  int64_t microbatch = -1;  // of this rank; -1: none
  int rank = 0;
  int64_t values = 0, of = 0;  // not finite; written
};

// Watches the ops of a step on this rank, in any world except the dry one. The host waits for the stream and reads
// every output, so this is not for training.
class FirstBadOp : public OpWatcher {
 public:
  // Both must outlive it.
  FirstBadOp(const Plan& plan, Stream& stream) : plan_(plan), stream_(stream) {}

  // Attributes the next ops to the instruction, or to the update if it is null (Stage's Follower).
  void follow(const Instruction* i);
  void launched(const char* name, std::span<const Tensor> written) override;

  const std::optional<BadOp>& first() const { return first_; }

 private:
  int64_t not_finite(const Tensor& t);

  const Plan& plan_;
  Stream& stream_;
  bool looking_ = false;  // ignore this class's own launches
  int64_t sequence_ = 0, part_ = 0, microbatch_ = -1;
  bool with_weights_ = false;  // gradients of matrices come after the other ops of this part
  std::string part_name_ = "the step's beginning";
  std::map<std::pair<int64_t, int64_t>, int64_t> ops_;  // count by sequence and part
  std::optional<BadOp> first_;
};

}  // namespace megalith
