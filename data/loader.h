// A Loader defines which tokens are trained on, in which order. It is a pure function of (stream, T, shuffle, seed): it
// has no position, so resuming and any division among ranks need no state.
//
// Sample i of a stream is tokens[i*T .. i*T+T]: T inputs, and the T targets that follow each of them. There are
// S = (size - 1) / T samples. Samples are counted from the start of the run: sample n belongs to epoch n / S and is
// there at position n % S. With shuffle the position goes through a permutation drawn from (seed, epoch), in which
// every sample occurs exactly once; without, samples come in file order.
//
// Owns a share of the stream's mapping. Any number of threads may call it at once.
#pragma once

#include <cstdint>
#include <span>

#include "data/token_stream.h"

namespace megalith {

class Loader {
 public:
  // Errors: sequence_length < 1; fewer than sequence_length + 1 tokens.
  Loader(TokenStream stream, int64_t sequence_length, bool shuffle, uint64_t seed);

  int64_t num_samples() const { return num_samples_; }  // S, of one epoch
  int64_t sequence_length() const { return sequence_length_; }

  // Samples [first, first + count) of the run, as count rows of T. Both outputs are (count, T) and written in full.
  void fill(int64_t first, int64_t count, std::span<int32_t> inputs, std::span<int32_t> targets) const;

  // Which sample of the stream is the n-th of the run, 0 .. S-1.
  int64_t sample_at(int64_t n) const;

 private:
  TokenStream stream_;
  int64_t sequence_length_, num_samples_;
  bool shuffle_;
  uint64_t seed_;
};

}  // namespace megalith
