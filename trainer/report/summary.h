// Computes the numbers by which runs are compared.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

// Returns the numbers of a run, by name; a number that the run does not have is null.
nlohmann::ordered_json summary_of(const History& run);

// Groups the indices of the runs by tokenizer. If a run has no recorded hash, data.tokenizer replaces it.
std::vector<std::vector<size_t>> by_tokenizer(const std::vector<History>& runs);
std::string tokenizer_in_words(const History& run);

// Sorts by validation bits per byte or, if no run has them and all have one tokenizer, by validation loss. The best
// comes first, runs without the figure last.
void sort_by_validation(std::vector<History>& runs);

}  // namespace megalith
