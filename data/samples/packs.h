// The sequences of a masked stream: its examples (the documents of prepare's conversations), each whole and in one
// sequence. An example of n tokens takes n - 1 places, since its last token predicts nothing; an example of a single
// token is left out.
//
// With `pack` several examples share a sequence, by best fit decreasing: the longest first, each into the sequence with
// the least sufficient room, the first of several (Johnson et al., Worst-case performance bounds for simple
// one-dimensional packing algorithms, SIAM J. Comput. 3, 1974). Sequences come in the order of their first examples,
// and the examples of a sequence in the order of the file. Without `pack` each example has its own sequence, in the
// order of the file. Both are pure functions of the examples' lengths. Any number of threads may call it at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/samples/source_course.h"
#include "data/samples/token_stream.h"

namespace megalith {

class Packs {
 public:
  // `within`: packs only the examples in these stretches, possibly none; null: all. Errors: an example of more than
  // sequence_length + 1 tokens; no example of two tokens in the stream.
  Packs(TokenStream stream, int64_t sequence_length, bool pack, const Stretches* within = nullptr);

  int64_t size() const { return std::ssize(ends_); }  // number of sequences
  int64_t sequence_length() const { return sequence_length_; }
  int64_t examples() const { return std::ssize(examples_); }
  int64_t places() const { return places_; }  // taken by examples, in all sequences

  // Returns where the examples of a sequence are in the stream.
  Stretches places_of(int64_t sequence) const;

  // Returns how many targets of a sequence count.
  int64_t counted(int64_t sequence) const { return counted_[static_cast<size_t>(sequence)]; }

  // Writes the inputs and targets of a sequence, sequence_length each: its examples in order. Targets that do not count
  // are -1, also those of the padding, whose inputs are 0.
  void fill(int64_t sequence, std::span<int32_t> inputs, std::span<int32_t> targets) const;

  // Returns where examples begin in a sequence, after its first place. Each place of padding is a document of its own,
  // which attends only to itself.
  std::vector<int64_t> begins(int64_t sequence) const;

 private:
  struct Example {
    int64_t begin;   // first token in the stream
    int32_t tokens;  // two or more
  };
  void find_examples(const Stretches* within);
  void pack_examples();
  std::span<const Example> examples_of(int64_t sequence) const;

  TokenStream stream_;
  int64_t sequence_length_, places_ = 0;
  std::vector<Example> examples_;  // ordered by sequence
  std::vector<int64_t> ends_;      // of each sequence: the end of its examples in examples_
  std::vector<int32_t> counted_;   // counted targets of each sequence
};

}  // namespace megalith
