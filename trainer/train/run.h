// `megalith train`: a run from config to last checkpoint.
#pragma once

#include "configs/config.h"
#include "trainer/session/session.h"

namespace megalith {

// Collective. Everything that can be wrong is found before training starts and thrown as a JobError on all ranks.
void run_training(Config config, const Session& session);

}  // namespace megalith
