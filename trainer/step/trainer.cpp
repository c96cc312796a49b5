#include "trainer/step/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/elementwise/elementwise.h"
#include "trainer/step/sample_room.h"

namespace megalith {

namespace {
// Returns the index in the model of each unit of the plan.
std::vector<int64_t> places_in_model(const Plan& plan, const std::vector<UnitSpec>& model) {
  std::vector<int64_t> places;
  for (const UnitPlan& unit : plan.units) {
    const auto same = [&](const UnitSpec& spec) { return spec.name == unit.name; };
    places.push_back(std::find_if(model.begin(), model.end(), same) - model.begin());
  }
  return places;
}

std::vector<size_t> not_finite(const double* values, int64_t n) {
  std::vector<size_t> places;
  for (int64_t i = 0; i < n; i++)
    if (!std::isfinite(values[i])) places.push_back(static_cast<size_t>(i));
  return places;
}

// A NaN's sign has no meaning, but would be printed.
double unsigned_nan(double v) { return std::isnan(v) ? std::numeric_limits<double>::quiet_NaN() : v; }
}  // namespace

Trainer::Trainer(const Config& config, const Plan& plan, Runtime& runtime)
    : config_(config),
      plan_(plan),
      runtime_(runtime),
      stage_(plan, runtime, true),
      optimizer_(config, plan, stage_.sharding().units(), stage_.needs(), runtime.memory),
      directions_(plan, runtime, stage_.sharding().units(), stage_.needs()),
      saved_(megalith::saved_tensors(plan, stage_.sharding().units(), optimizer_)),
      rank_stats_(plan.rank, plan.mesh.size(), runtime.memory) {
  if (saves_asynchronously(config.checkpoint)) copy_.emplace(saved_, runtime.memory);
  const std::vector<UnitSpec> model = model_spec(plan.model);
  num_units_ = static_cast<int64_t>(model.size());
  unit_index_ = places_in_model(plan, model);
  scalars_ = runtime.memory[MemoryClass::gradients].tensor(DType::f64, {2, num_units_ + 1});
  mine_ = scalars_.rows(0, 1);
  sums_ = scalars_.rows(1, 2);
  if (const SampleRoom room = sample_room(config); room.texts > 0)
    decoder_.emplace(plan, runtime, stage_.sharding(), room.texts, room.positions);
  stage_.update_by([this](const Instruction& i) { obey(i); });
}

void Trainer::initialize() {
  for (Unit& unit : stage_.sharding().units())
    unit.initialize(runtime_.stream, static_cast<uint64_t>(config_.train.seed));
  optimizer_.initialize(runtime_.stream);
  stage_.sharding().weights_changed();
}

void Trainer::initialize_trained() {
  for (Unit& unit : stage_.sharding().units())
    if (!unit.plan().frozen) unit.initialize(runtime_.stream, static_cast<uint64_t>(config_.train.seed));
}

void Trainer::clear() {
  for (Unit& unit : stage_.sharding().units()) unit.clear(runtime_.stream);
  optimizer_.initialize(runtime_.stream);
}

void Trainer::weights_loaded() {
  for (Unit& unit : stage_.sharding().units()) unit.round_working(runtime_.stream);
  stage_.sharding().weights_changed();
}

Stream::Ticket Trainer::step(int64_t step, int64_t first_sequence, Feed feed, const RankStats::Source& record,
                             StepScalars* out) {
  step_ = step;
  record_ = &record;
  launch(runtime_.stream, Fill{.y = mine_.flat(0, num_units_), .value = 0});
  stage_.train(
      {.feed = std::move(feed),
       .batch = plan_.batch,
       .dropout = {.p = config_.model.dropout, .seed = static_cast<uint64_t>(config_.train.seed), .step = step},
       .adapter_dropout = config_.model.adapter.dropout,
       .first_row = first_sequence * plan_.pass.T,
       .loss_scale = optimizer_.loss_scale()});
  stage_.sharding().weights_changed();
  read(out);
  stats_.wait();
  return rank_stats_.read(runtime_.stream, &out->ranks);
}

void Trainer::obey(const Instruction& i) {
  using Op = Instruction::Op;
  switch (i.op) {
    case Op::norm: return add_squares(static_cast<size_t>(i.unit));
    case Op::sum_norms: return sum_norms();
    case Op::decide:
      if (copy_) copy_->wait();  // the updates change these tensors
      return optimizer_.decide(runtime_.stream, step_, sums_, !plan_.masked || stage_.counted() > 0);
    case Op::send_momentum:
    case Op::orthogonalize:
    case Op::await_directions: return directions_.obey(i);
    default: return optimizer_.obey(runtime_.stream, i);
  }
}

// Every element of the gradient counts once, whichever ranks hold it. Elements that another rank counts are added times
// 0, which is 0 or, if one is not finite, NaN: no rank updates if any rank's copy is damaged.
void Trainer::add_squares(size_t u) {
  Stream& s = runtime_.stream;
  const Unit& unit = stage_.sharding().units()[u];
  const bool counts = runtime_.mesh.coordinate(Axis::data) == 0;
  const Interval shard = unit.plan().shard;
  const Tensor share = mine_.flat(unit_index_[u], unit_index_[u] + 1);
  const auto gradient = [&](int64_t begin, int64_t end) {
    return unit.gradient().flat(begin - shard.begin, end - shard.begin);
  };
  int64_t done = shard.begin;
  const auto skip_to = [&](int64_t next) {
    if (done < next) launch(s, AccumulateSum{.out = share, .x = gradient(done, next), .scale = 0});
    done = next;
  };
  for (const Interval& counted : unit.plan().counted) {
    const Interval here = intersect(counted, shard);
    if (!counts || here.size() == 0) continue;
    skip_to(here.begin);
    launch(s, AccumulateSquareSum{.out = share, .x = gradient(here.begin, here.end)});
    done = here.end;
  }
  skip_to(shard.end);
}

void Trainer::sum_norms() {
  Stream& s = runtime_.stream;
  share_of_loss(mine_.flat(num_units_, num_units_ + 1));
  launch(s, Copy{.y = sums_, .x = mine_});
  rank_stats_.write(s, *record_);
  Communicator& world = runtime_.mesh.channel(Channel::world);
  Pending sums = world.all_reduce(s, sums_, Reduce::sum);
  stats_ = rank_stats_.exchange(s, world);
  sums.wait();
}

const std::vector<SavedTensor>& Trainer::copy_state() {
  CHECK(copy_, "no copy of the state was planned: saves_asynchronously()");
  copy_->begin(runtime_.stream, saved_);
  return copy_->tensors();
}

void Trainer::await_copy() {
  copy_->wait();
  runtime_.stream.synchronize();
}

void Trainer::read(StepScalars* out) {
  Stream& s = runtime_.stream;
  const int64_t counted = stage_.counted();
  s.download("read_decision", optimizer_.decision(), [out, counted](Tensor host) {
    UpdateState state;
    std::memcpy(&state, host.raw(), sizeof state);
    *out = {.counted = counted,
            .grad_norm = unsigned_nan(state.norm),
            .decision = static_cast<Decision>(state.decision),
            .median = state.median,
            .loss_scale = state.loss_scale,
            .next_loss_scale = state.next_loss_scale};
  });
  if (!stage_.losses().empty())
    s.download("read_losses", stage_.losses(), [out](Tensor host) {
      for (const size_t k : not_finite(host.data<double>(), host.numel()))
        out->bad_microbatches.push_back(static_cast<int64_t>(k));
    });
  s.download("read_scalars", scalars_, [this, out, n = num_units_](Tensor host) {
    const double *mine = host.data<double>(), *sums = mine + host.cols();
    out->loss = unsigned_nan(mean_loss(sums[n], out->counted));
    if (const std::vector<size_t> bad = not_finite(sums, n); !bad.empty()) out->bad_unit = bad.back();
    out->bad_units = not_finite(mine, n);
  });
}

double Trainer::evaluate(int64_t sequences, Feed feed) {
  BatchPlan batch = plan_.batch;
  batch.batch = sequences;
  stage_.evaluate({.feed = std::move(feed), .batch = batch, .dropout = {}});
  Stream& s = runtime_.stream;
  const Tensor sum = sums_.flat(num_units_, num_units_ + 1);
  share_of_loss(sum);
  runtime_.mesh.channel(Channel::world).all_reduce(s, sum, Reduce::sum).wait();
  double loss = 0;
  s.download("read_scalars", sum, [&](Tensor host) { loss = *host.data<double>(); });
  s.synchronize();
  return mean_loss(loss, stage_.counted());
}

double Trainer::mean_loss(double sum, int64_t counted) const {
  if (!plan_.masked) return sum;  // the shares are of the mean
  return sum / static_cast<double>(counted);
}

void Trainer::share_of_loss(Tensor share) {
  if (plan_.tensor.rank == 0)
    launch(runtime_.stream, Copy{.y = share, .x = stage_.loss()});
  else
    launch(runtime_.stream, Fill{.y = share, .value = 0});
}

}  // namespace megalith
