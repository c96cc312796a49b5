// A folder of ../shared/reference/families: a model of another family than GPT-2, and what training must do with it, in
// float64.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {

inline const std::vector<std::string> all_families{"llama3", "mistral", "qwen2", "qwen3", "neox", "llama2"};

// How far training in 16 bits may lead from the reference: relative, the weights' of the tensor that is furthest off.
struct Bounds {
  double loss, norm, weights;
};
inline const std::map<std::string, Bounds> bounds_in_sixteen_bits{{"fp16", {0x1p-10, 0x1p-6, 0x1p-6}},
                                                                  {"bf16", {0x1p-8, 0x1p-4, 0x1p-4}}};

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

  // Expects the run in this type, "bf16" or "fp16", to keep to bounds_in_sixteen_bits.
  void expect_near(const std::string& run, const std::string& type) const;
};

#define SKIP_WITHOUT_FAMILY(family) \
  if (!(family).exists()) GTEST_SKIP() << "no reference at " << (family).folder()

}  // namespace megalith::e2e
