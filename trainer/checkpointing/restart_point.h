// Chooses the checkpoint from which a run restarts after it ended with an anomaly.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/checkpointing/stability.h"
#include "trainer/session/session.h"

namespace megalith {

struct RestartPoint {
  std::string path;  // empty: the run starts from the beginning
  int64_t step = 0;
  int64_t stable_after = 0;             // stable steps that followed it without a gap
  bool last_weights = false;            // it has the last weights, which are stable
  std::vector<std::string> suspects{};  // new names of newer checkpoints, the newest first
};

// Collective. Sets checkpoints newer than restart_step() aside as suspect, so that the next run resumes from that step.
RestartPoint choose_restart(const CheckpointConfig& config, const Session& session, const Stability& stability,
                            const LastWeights& last);

}  // namespace megalith
