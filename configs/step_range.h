// A range of steps in words: "10-12", or "10" for a single one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megalith {

struct StepRange {
  int64_t first = 0, last = 0;  // counted from 1, both included
};

// Nothing where the text is no such range, or ends before it begins.
std::optional<StepRange> step_range(const std::string& text);

}  // namespace megalith
