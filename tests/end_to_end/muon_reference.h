// A folder of ../shared/reference/muon: what Muon must do to a model of another reference, in float64.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {

struct MuonReference {
  std::string name;

  std::string folder() const { return reference("muon/" + name); }
  bool exists() const { return std::filesystem::exists(folder()); }
  std::vector<Step> steps() const;  // as they must be

  // The reference's config in the scratch folder; its model and tokens are another reference's.
  void write_config(const Scratch& scratch) const;

  // Returns the weights of the run's last checkpoint, by the names of the reference.
  static Weights weights_of(const Scratch& scratch, const std::string& run);
  // Returns the largest distance of a tensor from those of this kind ("final").
  double furthest(const Weights& found, const std::string& kind) const;
};

#define SKIP_WITHOUT_MUON(muon) \
  if (!(muon).exists()) GTEST_SKIP() << "no reference at " << (muon).folder()

}  // namespace megalith::e2e
