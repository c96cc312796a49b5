#include "trainer/step/rehearsal.h"

namespace megalith {

Rehearsal rehearse(const Config& config, const Plan& plan, TraceLevel level) {
  Runtime runtime(World::dry, {}, Mesh::dry(plan.mesh, plan.rank));
  Trainer trainer(config, plan, runtime);
  trainer.initialize();

  Rehearsal rehearsal;
  runtime.stream.clear_log();
  runtime.stream.trace().keep(level);
  StepScalars unread;
  trainer.step(0, 0, {}, false, &unread);
  rehearsal.ops = runtime.stream.log();
  rehearsal.trace = runtime.stream.trace().events();
  runtime.stream.trace().keep(TraceLevel::off);
  trainer.evaluate(plan.batch.batch, {});
  rehearsal.memory = runtime.memory.peaks();
  return rehearsal;
}

}  // namespace megalith
