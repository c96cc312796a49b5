// Chooses the next token of a text from its logits, and finds where a text stops. Pure functions: a draw is Philox's of
// (seed, sample, number of the token), so it is the same in any batch and on any number of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megalith {

struct Sampling {
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 50;        // sample among this many most likely tokens; 0: all
  uint64_t seed = 1;
  // Sample among the fewest most likely tokens that together have this probability, after temperature and top_k;
  // 1: all. Holtzman et al., arXiv 1904.09751.
  double top_p = 1;
  // Makes tokens that the text has already less likely: divides their positive logits by this, and multiplies negative
  // ones. 1: no change. Keskar et al., arXiv 1909.05858.
  double repetition_penalty = 1;
};

// Applies the penalty to the logits of the tokens in `before`.
void penalize(std::span<float> logits, std::span<const int32_t> before, double penalty);

// Returns the index of token number `token` of sample `sample`. The first of equal logits counts as more likely.
int64_t choose(std::span<const float> logits, const Sampling& sampling, uint64_t sample, uint64_t token);

// Cuts generated text before the first stop string. Holds back text that may be the beginning of one.
class StoppingText {
 public:
  explicit StoppingText(std::span<const std::string> stops) : stops_(stops) {}

  // Returns the text that can be shown after this piece.
  std::string add(std::string_view piece);
  // Returns the text held back at the end.
  std::string rest() { return std::exchange(held_, ""); }
  bool stopped() const { return stopped_; }

 private:
  std::span<const std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace megalith
