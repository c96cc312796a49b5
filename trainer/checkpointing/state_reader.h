// Reads numbers from a checkpoint's state, which a user may have edited.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoints/manifest.h"

namespace megalith {

// Throws an Error that names the checkpoint and the key if a value is absent without a default, negative where it must
// not be, or of another type.
class StateReader {
 public:
  // `path` names the checkpoint in messages. The manifest must outlive the reader.
  StateReader(const Manifest& manifest, std::string path) : state_(manifest.state), path_(std::move(path)) {}

  int64_t count(const char* key, std::optional<int64_t> absent = {}) const;
  double number(const char* key, double absent) const;
  // These two return an empty list if the key is absent.
  enum class Sign { positive, any };
  std::vector<double> numbers(const char* key, Sign sign = Sign::positive) const;
  // Returns pairs of steps [first, last], ascending and disjoint, up to `most`.
  std::vector<std::pair<int64_t, int64_t>> ranges(const char* key, int64_t most) const;

 private:
  const nlohmann::json* find(const char* key) const;  // null where absent
  void check_number(const char* key, const nlohmann::json& value) const;

  const nlohmann::json& state_;
  const std::string path_;
};

}  // namespace megalith
