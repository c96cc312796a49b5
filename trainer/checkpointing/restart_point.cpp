#include "trainer/checkpointing/restart_point.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoints/store.h"
#include "trainer/job/agreement.h"

namespace megalith {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RestartPoint, path, step, stable_after, last_weights, suspects)

RestartPoint choose_restart(const CheckpointConfig& config, const Session& session, const Stability& stability,
                            const LastWeights& last) {
  RestartPoint back;
  together(session, [&] {
    if (session.rank() != 0) return;
    const std::vector<std::string> all = CheckpointStore(config).usable();  // newest first
    const std::optional<int64_t> step = restart_step(steps_of(all), stability, config.settle, last);
    for (const std::string& path : all) {
      if (step && step_of_folder(path) == step) {
        back.path = path;
        back.step = *step;
        back.stable_after = stability.stable_after(*step);
        break;
      }
      back.suspects.push_back(set_aside(path, Aside::suspect));
    }
  });
  back.last_weights = last.stable && back.step >= last.since;
  return of_all_ranks(session, back).front();
}

}  // namespace megalith
