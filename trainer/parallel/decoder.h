// A Decoder continues texts: tokens go forward through the whole model, the keys and values of each layer are kept (one
// tensor a layer), and so every further token of a text costs one row. A text has a place; several are continued in one
// pass, each at a position of its own.
//
// The ranks of a tensor group have a part of each layer, of its cache and of the vocabulary; those of a shard group
// have shards of the weights, gather each layer when it is needed, and compute all the same. All ranks of the mesh make
// the same calls in the same order.
#pragma once

#include <span>
#include <vector>

#include "trainer/model/model.h"
#include "trainer/parallel/edges.h"
#include "trainer/parallel/program.h"
#include "trainer/parallel/sharding.h"

namespace megalith {

class Decoder {
 public:
  // Room for `places` texts of `positions` tokens, at most the model's context. `plan` and `runtime` must outlive it.
  // Errors: a pipeline, sequence parallelism.
  Decoder(const Plan& plan, Runtime& runtime, int64_t places, int64_t positions);

  Sharding& sharding() { return sharding_; }

  // A text from its beginning: the tokens stand at positions 0, 1, ... of the place, and what it held is forgotten.
  // Then the logits are those after the last of them, one row.
  void begin(int64_t place, std::span<const int32_t> tokens);

  // One more token of each of several texts; a place comes once. Then row i of the logits is that of next[i].
  struct Next {
    int64_t place, position;
    int32_t token;
  };
  void go_on(std::span<const Next> next);

  // Collective as well. The logits after the last pass, (rows, vocabulary), on every rank; the host waits for them. In
  // the dry world nothing is written.
  void read_logits(std::vector<float>& logits);

  // Collective: rank 0's tokens on all ranks.
  void share(std::vector<int32_t>& tokens);

 private:
  // `texts` sequences of as many tokens each; runs[r] of them stand at places[r].
  void run(int64_t texts, std::span<const int32_t> tokens, std::span<const Embedding::Run> runs,
           std::span<const int64_t> places, bool fresh);
  void forward(const Context& c, const Instruction& i, bool fresh);

  const Plan& plan_;
  Runtime& runtime_;
  const Model model_;
  const Program program_;
  Sharding sharding_;
  std::unique_ptr<Edge> edge_;
  Tensor tokens_, rows_;           // (N) i32; (N, 2) i32: place and position
  std::vector<Tensor> residuals_;  // (N, C)
  std::vector<Tensor> caches_;     // of each layer
  Tensor logits_, gathered_;       // (places, columns); of all tensor ranks
  int64_t logit_rows_ = 0, longest_ = 1;
};

}  // namespace megalith
