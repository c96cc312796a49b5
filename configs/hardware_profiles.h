// The profiles of configs/hardware/, built into the program.
#pragma once

#include <span>

namespace megalith {

struct KnownProfile {
  const char* name;  // "p4d.24xlarge", of configs/hardware/p4d.24xlarge.toml
  const char* toml;
};

std::span<const KnownProfile> known_profiles();

}  // namespace megalith
