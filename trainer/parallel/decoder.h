// A Decoder continues texts: tokens go forward through the whole model, and the keys and values of each layer are kept
// (one tensor a layer), so every further token of a text costs one row. A text has a slot; several are continued in one
// pass, each at its own position.
//
// Each rank of a tensor group has a part of each layer, of its cache and of the vocabulary, and all rows, also with
// sequence parallelism. The stages of a pipeline have the caches of their layers, and send rows on. The ranks of a
// shard group have shards of the weights, gather each layer when it is needed, and all compute the same. All ranks of
// the mesh make the same calls in the same order.
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
  // Allocates `places` slots for texts of `positions` tokens, at most the model's context, and its own weights. `plan`
  // and `runtime` must outlive it.
  Decoder(const Plan& plan, Runtime& runtime, int64_t places, int64_t positions);
  // As above with existing weights, such as those that this plan trains; they must outlive it.
  Decoder(const Plan& plan, Runtime& runtime, Sharding& weights, int64_t places, int64_t positions);

  Sharding& sharding() { return sharding_; }
  int64_t places() const { return places_; }
  int64_t positions() const { return positions_; }
  int64_t cache_bytes() const;

  // Starts a text: the tokens get positions 0, 1, ... of the slot, whose old content is dropped. The logits are then
  // one row, after the last token.
  void begin(int64_t place, std::span<const int32_t> tokens);

  // Adds one more token to each of several texts, each slot at most once. Row i of the logits is then that of next[i].
  struct Next {
    int64_t place, position;
    int32_t token;
  };
  void advance(std::span<const Next> next);

  // Adds several tokens to one text, the first at `position`; the slot's content before it is not computed again. The
  // logits are then one row, after the last token.
  void extend(int64_t place, int64_t position, std::span<const int32_t> tokens);

  // Collective as well. Reads the logits after the last pass, (rows, vocabulary), on every rank of the stage with the
  // head; on others the list is empty. The host waits. In the dry world nothing is written.
  void read_logits(std::vector<float>& logits);
  // Returns the first rank that has logits: rank 0 with a single stage, or a V.
  int first_with_logits() const;

  // Collective. Copies a rank's tokens to all ranks.
  void share(std::vector<int32_t>& tokens, int from);

  // Does the work that takes the most memory.
  void rehearse();

 private:
  Decoder(const Plan& plan, Runtime& runtime, std::unique_ptr<Sharding> own, Sharding* weights, int64_t places,
          int64_t positions);

  struct Pass {
    int64_t texts = 1;  // sequences of equal length
    std::span<const int32_t> tokens;
    std::span<const Embedding::PositionRange> runs;  // runs[r] of the tokens belong to the sequence in slot places[r]
    std::span<const int64_t> places;
    bool fresh = false;      // begins at position 0
    int64_t logit_rows = 1;  // number of last rows that get logits
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
  const std::unique_ptr<Sharding> own_;  // null if it uses weights of others
  Sharding& sharding_;
  std::unique_ptr<Edge> edge_;
  const int64_t places_, positions_;
  Tensor tokens_, rows_;            // (N) i32; (N, 2) i32: slot and position
  std::vector<Tensor> residuals_;   // (N, C)
  std::vector<Pending> transfers_;  // each residual's, between stages
  std::vector<Tensor> caches_;      // of each layer; empty if it is on another stage
  Tensor logits_, gathered_;        // (slots, columns); of all tensor ranks
  int64_t logit_rows_ = 0, longest_ = 1;
};

}  // namespace megalith
