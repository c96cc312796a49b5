// A rule that a config breaks, with its message. Inside configs/ only.
#pragma once

#include <fmt/ranges.h>

#include <string>
#include <utility>

#include "configs/config.h"
#include "configs/field_table.h"
#include "kernels/system/check.h"

namespace megalith {

struct Problem {
  std::string key;      // the key to change, "model.heads"
  std::string message;  // begins with the key and its value
};

// Makes a problem: "key = value ", then the reason and the remedy.
template <class... Args>
Problem problem(const Config& config, const std::string& key, fmt::format_string<Args...> rest, Args&&... args) {
  const Field* field = find_field(key);
  CHECK(field, "a rule names {}, which is not in the field table", key);
  return {key, fmt::format("{} = {} {}", key, toml_text(field->get(config)),
                           fmt::format(rest, std::forward<Args>(args)...))};
}

}  // namespace megalith
