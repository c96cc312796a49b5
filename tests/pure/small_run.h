// A model of odd sizes (3 heads of 5, sequences of 7, vocabulary 31), trained in-process on made-up text: what the
// tests of the trainer, with and without MPI, run. Its arenas have the sizes of its own rehearsal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "trainer/step/rehearsal.h"

namespace megalith {

// Five sequences a batch in microbatches of two, so that one slot of the last microbatch is masked on one rank.
inline Config small_config() {
  Config config;
  config.model = {.layers = 3, .hidden = 15, .heads = 3, .vocab = 31, .context = 9, .dropout = 0};
  config.batch = {.sequence_length = 7, .global_batch_size = 5, .microbatch_size = 2};
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.warmup_steps = 2;
  config.train.steps = 4;
  config.checkpoint.asynchronous = false;  // no memory for copies
  return resolve(config);
}

// Models of small_config's kind, each with a degree of tensor parallelism: one rank; a head on each of several; and
// key-value heads that several share, that several ranks hold, some or all of them, with biases and with norms.
inline std::vector<Config> small_models_of_heads() {
  struct Heads {
    int64_t heads, key_value_heads, tensor;
  };
  std::vector<Config> all;
  for (const auto& [heads, key_value_heads, tensor] :
       {Heads{3, 0, 1}, {3, 0, 3}, {4, 2, 2}, {3, 1, 3}, {4, 2, 4}, {6, 2, 6}, {6, 3, 6}}) {
    Config config = small_config();
    config.model.heads = heads;
    config.model.head_size = 5;
    config.model.key_value_heads = key_value_heads;
    config.model.query_key_norm = heads == 4;
    config.model.qkv_bias = heads != 6;
    config.parallel.tensor_parallel_degree = tensor;
    all.push_back(config);
  }
  return all;
}

// The made-up text. Sample i is tokens [i*T, i*T + T], as the loader reads a stream; half of it can be learnt.
inline int32_t token_at(int64_t index, int64_t vocab) {
  const auto word = [](int64_t i) { return int64_t{philox(99, static_cast<uint64_t>(i), 0)[0] >> 1}; };
  return static_cast<int32_t>((index % 2 ? 3 * (word(index - 1) % vocab) + 1 : word(index)) % vocab);
}

// Every third target of a masked text counts, and none of every fourth sample.
inline bool counts_at(const Config& config, int64_t index) {
  return !config.data.masked || (index % 3 == 0 && index / config.batch.sequence_length % 4 != 2);
}

inline Feed feed_text(const Config& config, int64_t first_sequence) {
  const int64_t T = config.batch.sequence_length, V = config.model.vocab;
  const auto fill = [=](Interval sequences, Tensor tokens, Tensor targets) {
    const int64_t begin = (first_sequence + sequences.begin) * T, n = sequences.size() * T;
    for (int64_t i = 0; i < tokens.numel(); i++) {
      tokens.data<int32_t>()[i] = i < n ? token_at(begin + i, V) : 0;
      targets.data<int32_t>()[i] = i < n && counts_at(config, begin + i) ? token_at(begin + i + 1, V) : -1;
    }
  };
  const auto counted = [=](Interval sequences) {
    int64_t sum = 0;
    for (int64_t i = sequences.begin * T; i < sequences.end * T; i++) sum += counts_at(config, first_sequence * T + i);
    return sum;
  };
  return {fill, {}, counted};
}

struct SmallRun {
  Config config;
  Plan plan;
  Rehearsal rehearsal;
  Runtime runtime;
  Trainer trainer;
  std::function<HostStats()> stats{};  // what this rank tells the others; zeros where it is empty

  SmallRun(const Config& c, Mesh mesh, World where = World::cpu)
      : config(c),
        plan(make_plan(config, mesh.shape().size(), mesh.rank())),
        rehearsal(rehearse(config, plan)),
        runtime(where, rehearsal.memory, std::move(mesh)),
        trainer(config, plan, runtime) {
    trainer.initialize();
  }
  explicit SmallRun(const Config& c, World where = World::cpu)  // alone
      : SmallRun(c, Mesh::dry(mesh_shape(c, 1), 0), where) {}

  StepScalars step(int64_t s, ControlFlags flags = {}) {
    StepScalars scalars;
    const int64_t first = s * config.batch.global_batch_size;
    runtime.stream.receive(trainer.step(
        s, first, feed_text(config, first),
        [&] {
          return RankRecord{flags, stats ? stats() : HostStats{}};
        },
        &scalars));
    return scalars;
  }
  std::vector<StepScalars> steps(int64_t n) {
    std::vector<StepScalars> all;
    for (int64_t s = 0; s < n; s++) all.push_back(step(s));
    return all;
  }
  // The update of a step alone, from the gradients that the units have and these sums.
  void update(int64_t s, Tensor sums) {
    trainer.optimizer().decide(runtime.stream, s, sums, true);
    const Program program = training_program(plan);
    const auto decision = std::ranges::find(program, Instruction::Op::decide, &Instruction::op);
    for (auto i = decision + 1; i != program.end(); ++i)
      if (i->round != Instruction::none)
        trainer.directions().obey(*i);
      else
        trainer.optimizer().obey(runtime.stream, *i);
  }
  double evaluate(int64_t sequences) { return trainer.evaluate(sequences, feed_text(config, 1000)); }

  std::vector<Unit>& units() { return trainer.stage().sharding().units(); }
};

inline std::vector<float> values_of(Tensor t) {
  if (t.dtype() == DType::f32) return {t.data<float>(), t.data<float>() + t.numel()};
  std::vector<float> values;
  for (int64_t i = 0; i < t.numel(); i++) values.push_back(static_cast<float>(t.data<bfloat16>()[i]));
  return values;
}

}  // namespace megalith
