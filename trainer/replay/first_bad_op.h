// The first op of a training step whose output is not finite.
//
// First is meant in the order of one rank that does the whole step: microbatch after microbatch, by the place of their
// sequences in the batch; in each the embedding, the layers, the head, the layers' gradients back to the embedding's;
// then what is done with gradients that are complete; then the update. So every layout names the same op, however ranks
// and stages overlap, unless its sums are in another order and round to something else.
//
// Ops alone are looked at. What a transfer sums up to something that is not finite is found in the op that reads it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "kernels/base/op_watcher.h"
#include "kernels/base/stream.h"
#include "trainer/parallel/plan.h"
#include "trainer/parallel/program.h"

namespace megalith {

struct BadOp {
  // The microbatch's first sequence in the batch, or beyond the batch where the op is of none; the part of the pass;
  // the op's number in that, from 1. Ascending in the order above.
  std::array<int64_t, 3> place{};
  std::string op;           // "linear_forward"
  std::string part;         // "the forward pass of block 3"
  int64_t microbatch = -1;  // of this rank; -1: none
  int rank = 0;
  int64_t values = 0, of = 0;  // that are not finite, of those that it writes
};

// Watches the ops of a step on this rank, in any world but the dry one. Each output is read by the host, which waits
// for the stream each time: this is for looking at one step, not for training.
class FirstBadOp : public OpWatcher {
 public:
  // Both must outlive it.
  FirstBadOp(const Plan& plan, Stream& stream) : plan_(plan), stream_(stream) {}

  // What follows is of this instruction; null: of the update. As a Stage's Follower.
  void follow(const Instruction* i);
  void launched(const char* name, std::span<const Tensor> written) override;

  const std::optional<BadOp>& first() const { return first_; }

 private:
  int64_t not_finite(const Tensor& t);

  const Plan& plan_;
  Stream& stream_;
  bool looking_ = false;  // what is launched is ours
  int64_t sequence_ = 0, part_ = 0, microbatch_ = -1;
  std::string part_name_ = "the step's beginning";
  std::map<std::pair<int64_t, int64_t>, int64_t> ops_;  // so far, by sequence and part
  std::optional<BadOp> first_;
};

}  // namespace megalith
