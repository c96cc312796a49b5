// The facts of a run on the page: how it ended, its warnings, the command, the program, tokenizer, data, a text that
// its model writes, and all of its configuration.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

// A card for each run; of several, they are folded.
std::string facts(const std::vector<History>& runs, const std::vector<std::string>& names);

}  // namespace megalith
