// A schedule is a list of actions that a stage obeys, and a pure function of the numbers it is made from.
#pragma once

#include <cstdint>
#include <vector>

namespace megalith {

struct Action {
  enum class Kind : uint8_t { forward, backward };
  Kind kind;
  int64_t microbatch;
  bool operator==(const Action&) const = default;
};

// One stage: F0 B0 F1 B1 ... One microbatch is alive at a time.
std::vector<Action> accumulate(int64_t num_microbatches);

}  // namespace megalith
