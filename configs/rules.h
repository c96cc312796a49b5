// The rules between keys. Inside configs/ only: validate() and parse_config() report from here, the latter with the
// line that set the key.
#pragma once

#include "configs/config.h"

#include <optional>
#include <string>
#include <vector>

namespace megalith {

struct Problem {
  std::string key;      // the key to change, "model.heads"
  std::string message;  // begins with the key and its value
};

// Returns the first rule that a resolved Config breaks, or nothing.
std::optional<Problem> first_problem(const Config& config);

// Returns the `most` values nearest to x, in order.
std::vector<int64_t> nearest(std::vector<int64_t> values, int64_t x, size_t most);

}  // namespace megalith
