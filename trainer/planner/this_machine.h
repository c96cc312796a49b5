// Measures this machine's CPU and the link between its ranks as a profile of configs/hardware. Profiles of GPUs come
// from data sheets.
#pragma once

#include <string>

#include "trainer/session/session.h"

namespace megalith {

// Error: the ranks are on several nodes.
void check_measurable(const Session& session);

// Returns whether the file is a profile that measure_this_machine() made.
bool is_measured_profile(const std::string& path);

// Collective. Returns the profile as TOML, the same on every rank: all cores are one device, which the ranks share.
// Rates are those of all ranks together.
std::string measure_this_machine(const Session& session);

}  // namespace megalith
