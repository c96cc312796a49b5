// The sequences of a masked stream: its examples (the documents of prepare's conversations), never cut, each in one
// sequence. An example of n tokens takes n - 1 places, for its last token predicts nothing; one of a single token takes
// none and is left out.
//
// With `pack` several examples share a sequence: best fit decreasing, that is the longest first, each into the sequence
// with the least room that is enough (Johnson et al., Worst-case performance bounds for simple one-dimensional packing
// algorithms, SIAM J. Comput. 3, 1974), of several the first. Sequences come in the order of their first examples, and
// examples lie in a sequence in the order of the file. Without it each example has a sequence, in the order of the
// file. Both are pure functions of the examples' lengths. Any number of threads may call it at once.
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
  // `within`: packs only the examples in these stretches, maybe none; null: all. Errors: an example of more than
  // sequence_length + 1 tokens; no example of two tokens among all.
  Packs(TokenStream stream, int64_t sequence_length, bool pack, const Stretches* within = nullptr);

  int64_t size() const { return std::ssize(ends_); }  // in sequences
  int64_t sequence_length() const { return sequence_length_; }
  int64_t examples() const { return std::ssize(examples_); }
  int64_t places() const { return places_; }  // of all sequences that an example takes

  // Returns where the examples of a sequence are in the stream.
  Stretches places_of(int64_t sequence) const;

  // Returns how many targets of a sequence count.
  int64_t counted(int64_t sequence) const { return counted_[static_cast<size_t>(sequence)]; }

  // Writes the inputs and targets of a sequence, both of sequence_length: one example behind the other. A target that
  // does not count is -1, and so is the padding's, whose inputs are 0.
  void fill(int64_t sequence, std::span<int32_t> inputs, std::span<int32_t> targets) const;

  // Returns where examples begin in a sequence, behind its first place. Each place of padding is one of its own, which
  // attends to itself alone.
  std::vector<int64_t> begins(int64_t sequence) const;

 private:
  struct Example {
    int64_t begin;   // token of the stream
    int32_t tokens;  // at least 2
  };
  void find_examples(const Stretches* within);
  void pack_examples();
  std::span<const Example> examples_of(int64_t sequence) const;

  TokenStream stream_;
  int64_t sequence_length_, places_ = 0;
  std::vector<Example> examples_;  // by sequence
  std::vector<int64_t> ends_;      // of each sequence, in examples
  std::vector<int32_t> counted_;   // of each sequence
};

}  // namespace megalith
