// A range of steps: "10-12", or "10" for one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megalith {

struct StepRange {
  int64_t first = 0, last = 0;  // counted from 1, both included
};

// Returns nullopt if the text is not such a range, or ends before it begins.
std::optional<StepRange> step_range(const std::string& text);

}  // namespace megalith
