#include "trainer/checkpointing/validation_history.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoints/manifest.h"
#include "checkpoints/store.h"
#include "trainer/checkpointing/run_fingerprint.h"

namespace megalith {

bool ValidationHistory::record(int64_t after_step, double new_loss) {
  step = after_step;
  loss.reset();
  if (std::isfinite(new_loss)) loss = new_loss;
  const bool improved = loss && (!lowest || *loss < *lowest);
  since_lowest = improved ? 0 : since_lowest + 1;
  if (improved) lowest = loss;
  return improved;
}

nlohmann::json ValidationHistory::to_json() const {
  nlohmann::json state = nlohmann::json::object();
  if (step == 0) return state;
  state["validation_step"] = step;
  if (loss) state["validation_loss"] = *loss;
  if (lowest) state["lowest_validation_loss"] = *lowest;
  state["evaluations_since_lowest_loss"] = since_lowest;
  return state;
}

ValidationHistory ValidationHistory::from(const StateReader& state) {
  ValidationHistory history{.step = state.count("validation_step", 0),
                            .since_lowest = state.count("evaluations_since_lowest_loss", 0)};
  if (const double loss = state.number("validation_loss", NAN); std::isfinite(loss)) history.loss = loss;
  if (const double lowest = state.number("lowest_validation_loss", NAN); std::isfinite(lowest)) history.lowest = lowest;
  return history;
}

std::string best_checkpoint(const std::string& directory) {
  std::string best, data;
  double lowest = INFINITY;
  for (const std::string& path : CheckpointStore(directory).usable()) {  // newest first
    const Manifest manifest = while_there(path, [&] { return read_manifest(path); });
    const ValidationHistory history = ValidationHistory::from(StateReader(manifest, path));
    if (history.step != manifest.step || !history.loss) continue;
    if (!std::isfinite(lowest)) data = validation_data_of(manifest.state);
    if (validation_data_of(manifest.state) != data || *history.loss > lowest) continue;
    lowest = *history.loss;
    best = path;
  }
  return best;
}

}  // namespace megalith
