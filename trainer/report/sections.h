// These functions make the sections of the page (page.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

// Returns the figures of one run.
std::string tiles(const History& run);

// Returns a table of several runs, with the settings in which they differ.
std::string table(const std::vector<History>& runs, const std::vector<std::string>& names);

// Returns for each run a card with its end, warnings, command, program, tokenizer, data, a sample text and
// configuration.
std::string facts(const std::vector<History>& runs, const std::vector<std::string>& names);

// Returns the curves for curves.js. Long runs are binned, with mean, minimum and maximum, so that a spike of one step
// among a million stays visible.
nlohmann::ordered_json plots(const std::vector<History>& runs, const std::vector<std::string>& names);

// Returns the breakdown of steps' time for stacked.js, with the same colours and scales for all runs.
nlohmann::ordered_json where_time_went(const std::vector<History>& runs);

// Keeps six digits; null stands for values that are not finite.
nlohmann::ordered_json plotted(const std::vector<double>& values);

}  // namespace megalith
