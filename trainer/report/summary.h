// Computes the numbers by which runs are compared.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

// Returns the numbers of a run, by name; a number that the run does not have is null.
nlohmann::ordered_json summary_of(const History& run);

// Groups the indices of the runs by tokenizer; data.tokenizer stands for one that is not recorded.
std::vector<std::vector<size_t>> by_tokenizer(const std::vector<History>& runs);
std::string tokenizer_in_words(const History& run);

// Sorts by held-out bits per byte or, if no run has them and all have one tokenizer, by held-out loss. The best comes
// first, runs without the figure last.
void sort_by_held_out(std::vector<History>& runs);

}  // namespace megalith
