// The page's first part: the figures of one run, or those of several and the settings in which they differ, a row a
// run.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

std::string tiles(const History& run);
std::string table(const std::vector<History>& runs, const std::vector<std::string>& names);

}  // namespace megalith
