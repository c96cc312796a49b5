#include "trainer/train/rehearsal.h"

namespace megalith {

Rehearsal rehearse(const Config& config, const Plan& plan) {
  Runtime runtime(World::dry, {}, Mesh::dry(plan.mesh, plan.rank));
  Trainer trainer(config, plan, runtime);
  trainer.initialize();

  Rehearsal rehearsal;
  runtime.stream.clear_log();
  for (Channel channel : all_channels) runtime.mesh.channel(channel).keep_log(true);
  StepScalars unread;
  trainer.step(0, 0, {}, false, &unread);
  rehearsal.ops = runtime.stream.log();
  for (Channel channel : all_channels) {
    rehearsal.transfers[static_cast<size_t>(channel)] = runtime.mesh.channel(channel).log();
    runtime.mesh.channel(channel).keep_log(false);
  }
  trainer.evaluate(plan.batch.batch, {});
  rehearsal.memory = runtime.memory.peaks();
  return rehearsal;
}

}  // namespace megalith
