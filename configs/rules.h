// The rules between keys, reported by validate() and parse_config(), the latter with the line. Inside configs/ only.
#pragma once

#include "configs/config.h"
#include "configs/problem.h"

#include <optional>
#include <string>
#include <vector>

namespace megalith {

// Returns the first rule that a resolved Config breaks, or nullopt.
std::optional<Problem> first_problem(const Config& config);

// Returns the rule of [adapter] and train.freeze that it breaks (adapter.cpp), or nullopt.
std::optional<Problem> trained_problem(const Config& config);

// Returns the rule of [optimizer] that it breaks (optimizer_rules.cpp), or nullopt.
std::optional<Problem> optimizer_problem(const Config& config);

// Returns the rule of [precision] that it breaks (precision_rules.cpp), or nullopt.
std::optional<Problem> precision_problem(const Config& config);

// Returns the `most` values nearest to x, in order.
std::vector<int64_t> nearest(std::vector<int64_t> values, int64_t x, size_t most);

}  // namespace megalith
