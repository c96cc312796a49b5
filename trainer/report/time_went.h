// What the seconds of steps went to, as JSON for a stacked plot of each run (stacked.js). A part of the time has one
// colour and a second one height in all of them, so that they can be compared.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

// Empty where no run says it.
nlohmann::ordered_json where_time_went(const std::vector<History>& runs);

}  // namespace megalith
