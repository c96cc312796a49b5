// Computes the figures by which runs are compared.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

struct Figure {
  std::string name, text, more = {};
  double value = no_number;
  int better = 0;          // 1: more, -1: less
  bool of_tokens = false;  // comparable under one tokenizer only
};

// Returns the same figures in the same order for every run.
std::vector<Figure> figures_of(const History& run);

// Groups the indices of the runs by tokenizer; data.tokenizer stands for one that is not recorded.
std::vector<std::vector<size_t>> by_tokenizer(const std::vector<History>& runs);
std::string tokenizer_in_words(const History& run);

// Sorts by held-out bits per byte or, if no run has them and all have one tokenizer, by held-out loss. The best comes
// first, runs without the figure last.
void sort_by_held_out(std::vector<History>& runs);

// Returns "done", "ended early", "not ended" or a dash.
std::string end_in_a_word(const RunLog& log);

}  // namespace megalith
