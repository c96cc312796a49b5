// The plots of the page as JSON: what curves.js draws. A course of very many steps is told in bins of some steps each,
// with their mean, lowest and highest value, so that a spike of one step among a million stays to be seen.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

// names: of the runs.
nlohmann::ordered_json plots(const std::vector<History>& runs, const std::vector<std::string>& names);

// Writes numbers with six digits; one that is not finite is null.
nlohmann::ordered_json plotted(const std::vector<double>& values);

}  // namespace megalith
