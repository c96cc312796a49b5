#include "trainer/train/trainer.h"

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

void Trainer::adopt_weights() {
  optimizer_.initialize(runtime_.stream);
  weights_loaded();
}

void Trainer::weights_loaded() {
  for (Unit& unit : stage_.sharding().units()) unit.round_working(runtime_.stream);
  stage_.sharding().weights_changed();
}

void Trainer::step(int64_t step, int64_t first_sequence, Feed feed, bool vote_to_stop, StepScalars* out) {
  stage_.begin(
      {.feed = std::move(feed),
       .batch = plan_.batch,
       .dropout = {.p = config_.model.dropout, .seed = static_cast<uint64_t>(config_.train.seed), .step = step},
       .first_row = first_sequence * plan_.dims.T});
  for (const Action& action : plan_.schedule)
    action.kind == Action::Kind::forward ? stage_.forward(action.microbatch) : stage_.backward(action.microbatch);
  stage_.finish_gradients();

  Stream& s = runtime_.stream;
  const Tensor square_sum = scalars_.flat(0, 1), loss = scalars_.flat(1, 2), votes = scalars_.flat(2, 3);
  fill(s, square_sum, 0);
  // Every element of the gradient counts once: the copies on the data axis hold the same.
  if (runtime_.mesh.coordinate(Axis::data) == 0)
    for (const Unit& unit : stage_.sharding().units()) accumulate_square_sum(s, square_sum, unit.gradient());
  copy(s, loss, stage_.loss());
  fill(s, votes, vote_to_stop ? 1 : 0);
  runtime_.mesh.channel(Channel::world).all_reduce(s, scalars_, Reduce::sum).wait();

  clip_scale(s, scale_, square_sum, config_.optimizer.gradient_clip);
  optimizer_.update(s, stage_.sharding().units(), step, scale_);
  stage_.sharding().weights_changed();
  s.launch("read_scalars", {.bytes = static_cast<double>(scalars_.bytes())}, [=, scalars = scalars_] {
    const double* v = scalars.data<double>();
    *out = {.loss = v[1], .grad_norm = std::sqrt(v[0]), .stop_votes = v[2]};
  });
}

double Trainer::evaluate(int64_t sequences, Feed feed) {
  BatchPlan batch = plan_.batch;
  batch.batch = sequences;
  stage_.begin_evaluation({.feed = std::move(feed), .batch = batch, .dropout = {}});
  for (int64_t k = 0; k < batch.num_microbatches(); k++) stage_.evaluate(k);
  Stream& s = runtime_.stream;
  runtime_.mesh.channel(Channel::world).all_reduce(s, stage_.loss(), Reduce::sum).wait();
  double loss = 0;
  s.launch("read_scalars", {.bytes = 8}, [&] { loss = *stage_.loss().data<double>(); });
  return loss;
}

}  // namespace megalith
