// A Decoder continues texts: tokens go forward through the whole model, the keys and values of each layer are kept (one
// tensor a layer), and so every further token of a text costs one row. A text has a place; several are continued in one
// pass, each at a position of its own.
//
// The ranks of a tensor group have a part of each layer, of its cache and of the vocabulary, and each has all rows,
// with sequence parallelism as well; the stages of a pipeline have the caches of their layers, and send rows on; the
// ranks of a shard group have shards of the weights, gather each layer when it is needed, and compute all the same. All
// ranks of the mesh make the same calls in the same order.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trainer/model/model.h"
#include "trainer/parallel/edges.h"
#include "trainer/parallel/sharding.h"
#include "trainer/program/program.h"

namespace megalith {

class Decoder {
 public:
  // Room for `places` texts of `positions` tokens, at most the model's context, and weights of its own. `plan` and
  // `runtime` must outlive it.
  Decoder(const Plan& plan, Runtime& runtime, int64_t places, int64_t positions);
  // The same with weights that are there, as those that are trained by this plan, and must outlive it.
  Decoder(const Plan& plan, Runtime& runtime, Sharding& weights, int64_t places, int64_t positions);

  Sharding& sharding() { return sharding_; }
  int64_t places() const { return places_; }
  int64_t positions() const { return positions_; }
  int64_t cache_bytes() const;

  // A text from its beginning: the tokens stand at positions 0, 1, ... of the place, and what it held is forgotten.
  // Then the logits are those after the last of them, one row.
  void begin(int64_t place, std::span<const int32_t> tokens);

  // One more token of each of several texts; a place comes once. Then row i of the logits is that of next[i].
  struct Next {
    int64_t place, position;
    int32_t token;
  };
  void go_on(std::span<const Next> next);

  // Several more tokens of one text, the first at `position`: what the place holds before that is not computed again.
  // Then the logits are those after the last of them, one row.
  void extend(int64_t place, int64_t position, std::span<const int32_t> tokens);

  // Collective as well. The logits after the last pass, (rows, vocabulary), on every rank of the stage with the head,
  // and nothing on others; the host waits for them. In the dry world nothing is written.
  void read_logits(std::vector<float>& logits);
  // The first rank that has logits: rank 0 where there is one stage, or a V.
  int first_with_logits() const;

  // Collective: a rank's tokens on all ranks.
  void share(std::vector<int32_t>& tokens, int from);

  // Does what takes the most memory.
  void rehearse();

 private:
  Decoder(const Plan& plan, Runtime& runtime, std::unique_ptr<Sharding> own, Sharding* weights, int64_t places,
          int64_t positions);

  struct Pass {
    int64_t texts = 1;  // sequences of as many tokens each
    std::span<const int32_t> tokens;
    std::span<const Embedding::PositionRange> runs;  // runs[r] of the tokens belong to the sequence in places[r]
    std::span<const int64_t> places;
    bool fresh = false;      // from position 0 on
    int64_t logit_rows = 1;  // the last so many
  };
  void run(const Pass& pass);
  void obey(const Context& c, const Instruction& i, const Pass& pass);
  void forward(const Context& c, const Instruction& i, bool fresh);
  Tensor residual(int32_t number, int64_t rows) const;
  bool has_logits() const { return plan_.chunks.back().last; }

  const Plan plan_;
  Runtime& runtime_;
  const Model model_;
  const Program program_;
  const std::unique_ptr<Sharding> own_;  // empty where the weights are somebody's else
  Sharding& sharding_;
  std::unique_ptr<Edge> edge_;
  const int64_t places_, positions_;
  Tensor tokens_, rows_;            // (N) i32; (N, 2) i32: place and position
  std::vector<Tensor> residuals_;   // (N, C)
  std::vector<Pending> transfers_;  // of each residual, between stages
  std::vector<Tensor> caches_;      // of each layer; empty where it is not here
  Tensor logits_, gathered_;        // (places, columns); of all tensor ranks
  int64_t logit_rows_ = 0, longest_ = 1;
};

}  // namespace megalith
