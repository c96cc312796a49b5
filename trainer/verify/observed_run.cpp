#include "trainer/verify/observed_run.h"

#include <algorithm>

#include "kernels/elementwise/philox.h"
#include "trainer/checkpointing/held_shards.h"
#include "trainer/checkpointing/resumer.h"
#include "trainer/step/text_data.h"

namespace megalith {

namespace {

Feed made_up_tokens(const Config& config, int64_t first) {
  const int64_t T = config.batch.sequence_length;
  const auto seed = static_cast<uint64_t>(config.data.seed), vocab = static_cast<uint64_t>(config.model.vocab);
  return [=](Interval sequences, Tensor tokens, Tensor targets) {
    const auto at = [=](int64_t i) {
      return static_cast<int32_t>(philox(seed, static_cast<uint64_t>(i), 0)[0] % vocab);
    };
    const int64_t begin = (first + sequences.begin) * T, n = sequences.size() * T;
    for (int64_t i = 0; i < tokens.numel(); i++) {
      tokens.data<int32_t>()[i] = i < n ? at(begin + i) : 0;
      targets.data<int32_t>()[i] = i < n ? at(begin + i + 1) : -1;
    }
  };
}

std::vector<float> floats(Tensor t) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(t.numel()));
  with_compute_type(t.dtype(), [&]<class T>(T) {
    for (int64_t i = 0; i < t.numel(); i++) values.push_back(static_cast<float>(t.data<T>()[i]));
  });
  return values;
}
void put(Tensor element, float value) {
  with_compute_type(element.dtype(), [&]<class T>(T) { *element.data<T>() = T(value); });
}

// Returns the index of the whole tensor's middle element in this shard, or -1.
int64_t middle_of_the_whole(const TensorShard& shard) {
  const int64_t cols = shard.cols(), middle = shard.rows() * cols / 2, column = middle % cols - shard.columns.begin;
  const int64_t width = shard.columns.size(), at = middle / cols * width + column - shard.elements.begin;
  return column < 0 || column >= width || at >= shard.numel() ? -1 : std::max<int64_t>(at, -1);
}

}  // namespace

void ObservedRun::start() {
  work_.open();
  if (config().checkpoint.init_from.empty())
    work_.trainer->initialize();
  else
    Resumer(config(), work_.session, *work_.trainer).initialize_weights();

  const int64_t rows = config().batch.global_batch_size * config().batch.sequence_length;
  work_.trainer->stage().observe([this, rows](const std::string& name, int64_t first_row, Tensor seen) {
    const int64_t C = seen.cols();
    record(flat_shard(name, {rows, C}, {first_row * C, first_row * C + seen.numel()}), seen);
  });
  if (config().optimizer.algorithm == Algorithm::muon)  // Muon replaces them by directions
    work_.trainer->stage().follow([this](const Instruction* i) {
      if (i != nullptr && i->op == Instruction::Op::decide) record_gradients();
    });
  record_weights();
  if (fault_.step == 0) work_.trainer->weights_loaded();
}

void ObservedRun::step(int64_t step, const Loader* data) {
  step_ = step;
  const int64_t first = (step - 1) * config().batch.global_batch_size;
  StepScalars scalars;
  work_.trainer->step(step - 1, first,
                      data ? feed_from(*data, first, config().model.vocab) : made_up_tokens(config(), first), {},
                      &scalars);
  work_.runtime->stream.synchronize();
  record_scalar("mean loss", scalars.loss);
  if (config().optimizer.algorithm != Algorithm::muon) record_gradients();
  record_scalar("gradient norm", scalars.grad_norm);
  record_weights();
}

void ObservedRun::record(const TensorShard& shard, Tensor data) {
  Stream& s = work_.runtime->stream;
  std::vector<float> values;
  s.download("show", data, [&](Tensor host) { values = floats(host); });
  s.synchronize();
  if (const float* wrong = inject_fault(shard, values))
    s.upload("inject_fault", {data.flat(wrong - values.data(), wrong - values.data() + 1)},
             [&](std::span<const Tensor> host) { put(host[0], *wrong); });
  store(shard, values);
}

void ObservedRun::record_scalar(const std::string& name, double value) {
  std::vector<float> values = {static_cast<float>(value)};
  const TensorShard shard = whole_tensor(name, {1});
  inject_fault(shard, values);
  store(shard, values);
}

const float* ObservedRun::inject_fault(const TensorShard& shard, std::vector<float>& values) const {
  if (step_ != fault_.step || shard.name != fault_.name) return nullptr;
  const int64_t at = middle_of_the_whole(shard);
  if (at < 0) return nullptr;
  float& value = values[static_cast<size_t>(at)];
  value += 1;
  return &value;
}

void ObservedRun::store(const TensorShard& shard, const std::vector<float>& values) {
  Recorded& recorded = recorded_[shard.name];
  recorded.shards.push_back(shard);
  recorded.values.insert(recorded.values.end(), values.begin(), values.end());
}

void ObservedRun::record_gradients() {
  for (const Unit& unit : work_.trainer->stage().sharding().units()) {
    if (unit.plan().frozen) continue;
    for (const HeldShard& held : held_shards(unit, "d ", unit.gradient(), {0, unit.plan().numel}))
      record(held.shard, held.data);
  }
}

void ObservedRun::record_weights() {
  weights_.clear();
  for (const Unit& unit : work_.trainer->stage().sharding().units())
    for (const HeldShard& held : held_shards(unit, "", unit.master(), {0, unit.plan().numel})) {
      record(held.shard, held.data);
      weights_[held.shard.name].push_back(held.data);
    }
}

Recorded ObservedRun::take(const std::string& name) {
  const auto found = recorded_.find(name);
  if (found == recorded_.end()) return {};
  Recorded recorded = std::move(found->second);
  recorded_.erase(found);
  return recorded;
}

void ObservedRun::set_weights(const std::string& name, std::span<const float> values) {
  for (const Tensor& shard : weights_[name]) {
    const auto n = static_cast<size_t>(shard.numel());
    work_.runtime->stream.upload("set_weights", {shard}, [&](std::span<const Tensor> host) {
      for (size_t i = 0; i < n; i++) put(host[0].flat(static_cast<int64_t>(i), static_cast<int64_t>(i) + 1), values[i]);
    });
    values = values.subspan(n);
  }
}

void ObservedRun::weights_set() {
  for (Unit& unit : work_.trainer->stage().sharding().units()) unit.round_working(work_.runtime->stream);
}

}  // namespace megalith
