#include "tests/end_to_end/muon_reference.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/end_to_end/reference_tensors.h"

namespace megalith::e2e {

namespace {

nlohmann::json json_of(const MuonReference& muon) {
  return nlohmann::json::parse(read_file(muon.folder() + "/reference.json"));
}

}  // namespace

std::vector<Step> MuonReference::steps() const { return steps_of(json_of(*this)); }

void MuonReference::write_config(const Scratch& scratch) const {
  const nlohmann::json r = json_of(*this).at("recipe");
  const std::string from = folder() + "/" + r.at("from").get<std::string>();
  write_reference_config(scratch / "config.toml", from, from);
  std::string text = read_file(scratch / "config.toml");
  text = text.substr(text.find("[data]"));  // the weights bring the model
  const std::string section = "[optimizer]\n";
  text.insert(text.find(section) + section.size(),
              fmt::format("algorithm = \"muon\"\nmuon_learning_rate = {:e}\nmuon_min_learning_rate = {:e}\n",
                          r.at("muon_lr").get<double>(), r.at("muon_min_lr").get<double>()));
  write_file(scratch / "config.toml", text);
}

Weights MuonReference::weights_of(const Scratch& scratch, const std::string& run) {
  succeed(megalith({"checkpoint", "export", run, "--out", run + "-export", "--type", "fp32"}), scratch);
  return read_weights(scratch / (run + "-export/model.safetensors"));
}

double MuonReference::furthest(const Weights& found, const std::string& kind) const {
  double worst = 0;
  for (const auto& [tensor, weight] : found)
    worst = std::max(worst, relative_error(weight.values, read_hdf5(folder() + "/reference.h5", kind + "/" + tensor)));
  EXPECT_GT(found.size(), 10u);
  return worst;
}

}  // namespace megalith::e2e
