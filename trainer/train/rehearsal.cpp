#include "trainer/train/rehearsal.h"

namespace megalith {

Rehearsal rehearse(const Config& config, const Plan& plan) {
  Runtime runtime(World::dry, {}, Mesh::dry(plan.mesh, plan.rank));
  Trainer trainer(config, plan, runtime);
  trainer.initialize();

  Rehearsal rehearsal;
  runtime.stream.clear_log();
  for (Axis axis : all_axes) runtime.mesh.axis(axis).keep_log(true);
  StepScalars unread;
  trainer.step(0, 0, {}, false, &unread);
  rehearsal.ops = runtime.stream.log();
  for (Axis axis : all_axes) {
    rehearsal.transfers[static_cast<size_t>(axis)] = runtime.mesh.axis(axis).log();
    runtime.mesh.axis(axis).keep_log(false);
  }
  trainer.evaluate(plan.batch.batch, {});
  rehearsal.memory = runtime.memory.peaks();
  return rehearsal;
}

}  // namespace megalith
