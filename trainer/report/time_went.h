// The part of the page that says what the seconds of steps went to: a stacked plot for each run. A part of the time has
// one colour and a second one height in all of them, so that they can be compared.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

// names: of the runs. Empty where no run says it.
std::string where_time_went(const std::vector<History>& runs, const std::vector<std::string>& names);

}  // namespace megalith
