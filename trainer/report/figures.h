// The figures by which runs are looked at and compared, and which of the runs may be.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

struct Figure {
  std::string name, text, more = {};
  double value = no_number;
  int better = 0;          // 1: more, -1: less
  bool of_tokens = false;  // a loss a token, which means something else under another tokenizer
};

// The same ones in the same order for every run.
std::vector<Figure> figures_of(const History& run);

// Runs under one tokenizer, as indices: a group for each tokenizer. Runs that do not say theirs are told apart by
// data.tokenizer.
std::vector<std::vector<size_t>> by_tokenizer(const std::vector<History>& runs);
std::string tokenizer_in_words(const History& run);

// The best first: by held-out bits per byte, or, where no run has them and all have one tokenizer, by held-out loss.
// Runs without that come last.
void sort_by_held_out(std::vector<History>& runs);

// "done", "ended early", "not ended".
std::string end_in_a_word(const RunLog& log);

}  // namespace megalith
