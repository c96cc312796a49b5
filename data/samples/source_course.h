// The position of a source of tokens in a run whose data changes: which of its tokens are still to come in the present
// epoch. A pure function of how the source was cut into samples and how many were taken. For one thread.
//
// While the cut stays the same, a source continues in its order. When it changes (longer sequences, a file that grew,
// another seed), the rest of the epoch is cut anew: its stretches of tokens, joined, in sequences of the new length. So
// no token comes twice in an epoch. Tokens at the end that fill no sequence are left out of this epoch. The rest of a
// masked source is its examples that have not come yet, packed anew.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/samples/sample_order.h"
#include "data/samples/token_stream.h"

namespace megalith {

// How a source is cut into samples.
struct SampleCut {
  int64_t tokens = 0;  // tokens of the source
  int64_t sequence_length = 0;
  bool masked = false, pack = true;  // masked: it has examples (packs.h)
  bool shuffle = true;
  uint64_t seed = 0;
  bool operator==(const SampleCut&) const = default;
};

// Returns the cut without settings that have no effect on it: the seed without shuffling, `pack` without a mask.
SampleCut usual(SampleCut cut);

// Tokens [begin, end) that are inputs of samples; of a masked source they hold whole examples.
struct Stretch {
  int64_t begin, end;
  bool operator==(const Stretch&) const = default;
};
using Stretches = std::vector<Stretch>;  // ascending and disjoint

int64_t tokens_in(const Stretches& stretches);

class SourceCourse {
 public:
  explicit SourceCourse(uint64_t key) : key_(key) {}

  // Cuts the source this way from now on. `stream` is read if it is masked, its first cut.tokens tokens; otherwise it
  // may be null. Error: the source had more tokens before.
  void cut(const SampleCut& cut, const TokenStream* stream);
  // Takes this many samples for the run.
  void take(int64_t samples);

  // Returns where the source is.
  SourceBegin begin() const;
  // Returns the tokens of the rest that begin() counts in samples; null if the epoch is whole.
  const Stretches* rest() const { return rest_ ? &*rest_ : nullptr; }
  // Returns the tokens of the present epoch that have not come yet, as the present cut would return them.
  Stretches unseen() const;

 private:
  int64_t samples_of_part() const;

  uint64_t key_;
  std::optional<SampleCut> cut_;
  std::optional<TokenStream> masked_;  // the first cut_->tokens tokens
  int64_t whole_ = 0;                  // samples of an epoch
  int64_t epoch_ = 0, taken_ = 0;      // taken_: of the epoch or of its rest
  std::optional<Stretches> rest_;
  int64_t rest_samples_ = 0;
};

}  // namespace megalith
