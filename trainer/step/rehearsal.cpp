#include "trainer/step/rehearsal.h"

#include <algorithm>

namespace megalith {

Rehearsal rehearse(const Config& config, const Plan& plan, TraceLevel level) {
  Runtime runtime(plan.chip, Mesh::dry(plan.mesh, plan.rank));
  Trainer trainer(config, plan, runtime);
  trainer.initialize();

  Rehearsal rehearsal;
  runtime.stream.clear_log();
  runtime.stream.trace().keep(level);
  StepScalars unread;
  trainer.step(0, 0, {}, {}, &unread);
  rehearsal.ops = runtime.stream.log();
  rehearsal.graphs = runtime.stream.graphs();
  rehearsal.gemms = runtime.stream.gemms();
  rehearsal.trace = runtime.stream.trace().events();
  runtime.stream.trace().keep(TraceLevel::off);
  // An evaluation of two microbatches uses as much memory as one of any number.
  trainer.evaluate(std::min(plan.batch.batch, 2 * plan.batch.microbatch * plan.batch.ranks), {});
  if (Decoder* decoder = trainer.decoder()) {
    decoder->rehearse();
    rehearsal.sample_cache = decoder->cache_bytes();
  }
  rehearsal.memory = runtime.memory.peaks();
  for (const Channel channel : all_channels) rehearsal.placements.push_back(runtime.mesh.channel(channel).placement());
  for (const SavedTensor& tensor : trainer.saved_tensors()) rehearsal.saved += tensor.values.bytes();
  return rehearsal;
}

}  // namespace megalith
