// This machine as data: what its CPU and the link between its ranks were measured to do, as a profile of
// configs/hardware, so that runs on it can be planned. GPUs are not measured; theirs are the numbers of data sheets.
#pragma once

#include <string>

#include "trainer/session/session.h"

namespace megalith {

// Error: several nodes.
void check_measurable(const Session& session);

// Returns whether the file is such a profile as the next function makes.
bool is_measured_profile(const std::string& path);

// Collective, of ranks that are measurable. The profile as TOML, the same on every rank: all the machine's cores are
// one device, which the ranks share. Rates are what all ranks reach together, from the first one's start to the last
// one's end.
std::string measure_this_machine(const Session& session);

}  // namespace megalith
