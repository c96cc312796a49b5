// A Loader defines the training order of tokens as a pure function of (streams, blend, T, shuffle, seed, pack). It has
// no position, so resuming and any division among ranks need no state.
//
// Sample i of a stream is tokens[i*T .. i*T+T]: T inputs, and for each the next token as its target. A stream has S =
// (size - 1) / T samples. The samples of a masked stream are its sequences of examples (packs.h). sample_order.h maps
// the run's samples to those of streams. Any number of threads may call it at once.
//
// A Loader begins with the first sample of every stream. After resume() a run whose data has changed continues in each
// stream where it was (source_course.h); samples of the rest of an epoch are T tokens of its stretches, joined.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/samples/packs.h"
#include "data/samples/sample_order.h"
#include "data/samples/source_course.h"
#include "data/samples/token_stream.h"

namespace megalith {

class Loader {
 public:
  // pack: examples of masked streams share sequences. Errors: sequence_length < 1; a stream of fewer than
  // sequence_length + 1 tokens; those of Packs.
  Loader(std::vector<TokenStream> streams, Blend blend, int64_t sequence_length, bool shuffle, uint64_t seed,
         bool pack = true);
  Loader(TokenStream stream, int64_t sequence_length, bool shuffle, uint64_t seed)
      : Loader(std::vector{std::move(stream)}, Blend({1}), sequence_length, shuffle, seed) {}

  // The run's samples from `first` on come in an order that begins each stream at the position of its course. Each
  // course ends with the cut of its stream that this Loader uses.
  void resume(int64_t first, const std::vector<SourceCourse>& courses);
  bool packs_examples() const { return pack_; }

  const std::vector<TokenStream>& streams() const { return streams_; }
  const SampleOrder& order() const { return order_; }
  int64_t num_samples() const;  // sum over one epoch of every stream
  int64_t sequence_length() const { return sequence_length_; }
  // Returns the number of tokens at a stream's end that fill no sample, and so are never targets.
  int64_t left_out(size_t stream) const {
    return packs(stream) ? 0 : streams_[stream].size() - 1 - order_.sizes()[stream] * sequence_length_;
  }
  // Returns the sequences of a masked stream; null for other streams.
  const Packs* packs(size_t stream) const { return packs_[stream].get(); }
  // Returns the rest of the epoch with which a stream begins; null if it begins with a whole epoch.
  const Stretches* rest(size_t stream) const {
    return rests_[stream].stretches.empty() ? nullptr : &rests_[stream].stretches;
  }
  // Returns whether any stream is masked, so that some targets may be -1.
  bool is_masked() const;
  // Returns how many targets in samples [first, first + count) of the run count.
  int64_t counted(int64_t first, int64_t count) const;

  // Writes samples [first, first + count) of the run to inputs and targets, both (count, T).
  void fill(int64_t first, int64_t count, std::span<int32_t> inputs, std::span<int32_t> targets) const;

  // Returns where documents begin in the n-th sample of the run, after its first token; empty if the format has no
  // documents.
  std::vector<int64_t> document_begins(int64_t n) const;

  std::string name_of(int64_t n) const;

 private:
  // The rest of an epoch.
  struct Rest {
    Stretches stretches;
    std::vector<int64_t> ends;           // ends of the joined stretches
    std::shared_ptr<const Packs> packs;  // set for a masked stream
  };
  const Packs* packs_of(const Sample& sample) const;
  // Calls visit(begin, count, place) for the parts of a sample: the first token in the stream, the number of tokens,
  // and the offset in the sample.
  template <class Visit>
  void for_each_part(const Sample& sample, const Visit& visit) const;

  std::vector<TokenStream> streams_;
  std::vector<std::shared_ptr<const Packs>> packs_;  // one for each stream
  int64_t sequence_length_;
  bool pack_;
  std::vector<Rest> rests_;  // one for each stream
  SampleOrder order_;
};

}  // namespace megalith
