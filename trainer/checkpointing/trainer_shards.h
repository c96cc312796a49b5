// The shards that a rank saves and reads back: of its trainer's weights and optimizer state.
#pragma once

#include <vector>

#include "trainer/checkpointing/held_shards.h"
#include "trainer/step/trainer.h"

namespace megalith {

enum class Units { all, trained, frozen };
// Returns the shards of the weights of some units and, unless `parameters_only`, of the state of the trained ones.
std::vector<HeldShard> trainer_shards(Trainer& trainer, Units of, bool parameters_only);
// Returns the shards of these tensors.
std::vector<HeldShard> trainer_shards(Trainer& trainer, const std::vector<SavedTensor>& tensors);

}  // namespace megalith
