// Makes the data of the page (page.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

constexpr int num_colours = 12;  // line-0 to line-11, area-0 to area-11 in page.css

// Returns the facts of a run: its numbers, end, warnings, command, program, tokenizer, data, texts, settings
// and memory.
nlohmann::ordered_json said_of_run(const History& run);

// Returns the curves for curves.js. Long runs are binned, with mean, minimum and maximum, so that a spike of one step
// among a million stays visible.
nlohmann::ordered_json plots(const std::vector<History>& runs, const std::vector<std::string>& names);

// Returns the breakdown of steps' time for stacked.js, with the same colours and scales for all runs.
nlohmann::ordered_json where_time_went(const std::vector<History>& runs);

// Rounds to six digits; values that are not finite become null.
nlohmann::ordered_json plotted(const std::vector<double>& values);

}  // namespace megalith
