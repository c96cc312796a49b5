// A folder of ../shared/reference/families: a model of another family than GPT-2, and what training must do with it, in
// float64.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {

inline const std::vector<std::string> all_families{"llama3", "mistral", "qwen2", "qwen3", "neox", "llama2"};

struct Family {
  std::string name;

  std::string folder() const { return reference("families/" + name); }
  bool exists() const { return std::filesystem::exists(folder()); }
  nlohmann::json recipe() const;
  std::vector<Step> steps() const;  // as they must be

  // The reference's config but for the model, which its weights bring; in the scratch folder.
  void write_config(const Scratch& scratch, const std::string& weights) const;

  // Returns the largest distance of a parameter's values, at `path` of a checkpoint, from those of this kind ("final").
  double furthest(const std::string& checkpoint, const std::string& path, const std::string& kind) const;
};

#define SKIP_WITHOUT_FAMILY(family) \
  if (!(family).exists()) GTEST_SKIP() << "no reference at " << (family).folder()

}  // namespace megalith::e2e
