// Where a source of tokens is in a run whose data changes: which of its tokens the present epoch has not had yet. A
// pure function of how the source was cut into samples and of how many it gave. Belongs to one thread.
//
// While nothing about the cutting changes, a source continues in its order. Where it changes (longer sequences, a file
// that grew, another seed), the samples of the epoch's rest are cut anew: its stretches of tokens, one after the
// other, in sequences of the new length; so no token comes twice in an epoch. What fills no sequence at the end is left
// out of this epoch. Of a masked source the rest is the examples that did not come yet, packed anew.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/samples/sample_order.h"
#include "data/samples/token_stream.h"

namespace megalith {

// How a source is cut into samples.
struct SampleCut {
  int64_t tokens = 0;  // of the source
  int64_t sequence_length = 0;
  bool masked = false, pack = true;  // of examples (packs.h)
  bool shuffle = true;
  uint64_t seed = 0;
  bool operator==(const SampleCut&) const = default;
};

// Returns the cut without what has no effect on it: the seed where nothing is shuffled, `pack` without a mask.
SampleCut usual(SampleCut cut);

// Tokens [begin, end) that are inputs of samples; of a masked source they hold whole examples.
struct Stretch {
  int64_t begin, end;
  bool operator==(const Stretch&) const = default;
};
using Stretches = std::vector<Stretch>;  // ascending, apart from one another

int64_t tokens_in(const Stretches& stretches);

class SourceCourse {
 public:
  explicit SourceCourse(uint64_t key) : key_(key) {}

  // From here on the source is cut so. A masked one is read, its first cut.tokens tokens; of others `stream` may be
  // null. Error: a source that had more tokens before.
  void cut(const SampleCut& cut, const TokenStream* stream);
  // The run takes this many samples.
  void take(int64_t samples);

  // Returns where the source is.
  SourceBegin begin() const;
  // Returns the tokens of the rest that begin() counts in samples; null where the epoch is whole.
  const Stretches* rest() const { return rest_ ? &*rest_ : nullptr; }
  // Returns the tokens of the present epoch that did not come yet, as samples cut so would have them.
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
