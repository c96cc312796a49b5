// The numbers in a checkpoint's state, which anybody may have edited.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoints/manifest.h"

namespace megalith {

// Errors name the checkpoint and the key: it is not there and has no value to take instead, is below 0 where it may not
// be, or is of another type.
class StateReader {
 public:
  // `path` is the checkpoint's. The manifest outlives the reader.
  StateReader(const Manifest& manifest, std::string path) : state_(manifest.state), path_(std::move(path)) {}

  int64_t count(const char* key, std::optional<int64_t> absent = {}) const;
  double number(const char* key, double absent) const;
  // None where it is not there.
  enum class Sign { positive, any };
  std::vector<double> numbers(const char* key, Sign sign = Sign::positive) const;
  // Pairs of steps [first, last], ascending and apart, up to `most`; none where it is not there.
  std::vector<std::pair<int64_t, int64_t>> ranges(const char* key, int64_t most) const;

 private:
  const nlohmann::json* find(const char* key) const;  // null: it is not there
  void check_number(const char* key, const nlohmann::json& value) const;

  const nlohmann::json& state_;
  const std::string path_;
};

}  // namespace megalith
