#include "trainer/step/trainer.h"

#include <cmath>

#include "kernels/elementwise.h"

namespace megalith {

Trainer::Trainer(const Config& config, const Plan& plan, Runtime& runtime)
    : config_(config),
      plan_(plan),
      runtime_(runtime),
      stage_(plan, runtime, true),
      optimizer_(config.optimizer, stage_.sharding().units(), runtime.memory) {
  Arena& arena = runtime.memory[MemoryClass::gradients];
  scalars_ = arena.tensor(DType::f64, {3});
  scale_ = arena.tensor(DType::f64, {1});
}

void Trainer::initialize() {
  for (Unit& unit : stage_.sharding().units())
    unit.initialize(runtime_.stream, static_cast<uint64_t>(config_.train.seed));
  optimizer_.initialize(runtime_.stream);
  stage_.sharding().weights_changed();
}

void Trainer::clear() {
  for (Unit& unit : stage_.sharding().units()) unit.clear(runtime_.stream);
  optimizer_.initialize(runtime_.stream);
}

void Trainer::weights_loaded() {
  for (Unit& unit : stage_.sharding().units()) unit.round_working(runtime_.stream);
  stage_.sharding().weights_changed();
}

Stream::Ticket Trainer::step(int64_t step, int64_t first_sequence, Feed feed, bool vote_to_stop, StepScalars* out) {
  stage_.train(
      {.feed = std::move(feed),
       .batch = plan_.batch,
       .dropout = {.p = config_.model.dropout, .seed = static_cast<uint64_t>(config_.train.seed), .step = step},
       .first_row = first_sequence * plan_.block.attention.T});

  Stream& s = runtime_.stream;
  const Tensor square_sum = scalars_.flat(0, 1), loss = scalars_.flat(1, 2), votes = scalars_.flat(2, 3);
  fill(s, square_sum, 0);
  // Every element of the gradient and every loss counts once, whoever else holds it.
  if (runtime_.mesh.coordinate(Axis::data) == 0)
    for (const Unit& unit : stage_.sharding().units()) {
      const UnitPlan& plan = unit.plan();
      const Interval here = intersect(plan.mine, plan.shard);
      if (here.size() > 0)
        accumulate_square_sum(s, square_sum,
                              unit.gradient().flat(here.begin - plan.shard.begin, here.end - plan.shard.begin));
    }
  share_of_loss(loss);
  fill(s, votes, vote_to_stop ? 1 : 0);
  runtime_.mesh.channel(Channel::world).all_reduce(s, scalars_, Reduce::sum).wait();

  clip_scale(s, scale_, square_sum, config_.optimizer.gradient_clip);
  optimizer_.update(s, stage_.sharding().units(), step, scale_);
  stage_.sharding().weights_changed();
  return s.download("read_scalars", scalars_, [out](Tensor scalars) {
    const double* v = scalars.data<double>();
    *out = {.loss = v[1], .grad_norm = std::sqrt(v[0]), .stop_votes = v[2]};
  });
}

double Trainer::evaluate(int64_t sequences, Feed feed) {
  BatchPlan batch = plan_.batch;
  batch.batch = sequences;
  stage_.evaluate({.feed = std::move(feed), .batch = batch, .dropout = {}});
  Stream& s = runtime_.stream;
  const Tensor sum = scalars_.flat(1, 2);
  share_of_loss(sum);
  runtime_.mesh.channel(Channel::world).all_reduce(s, sum, Reduce::sum).wait();
  double loss = 0;
  s.download("read_scalars", sum, [&](Tensor host) { loss = *host.data<double>(); });
  s.synchronize();
  return loss;
}

void Trainer::share_of_loss(Tensor share) {
  if (plan_.tensor.rank == 0)
    copy(runtime_.stream, share, stage_.loss());
  else
    fill(runtime_.stream, share, 0);
}

}  // namespace megalith
