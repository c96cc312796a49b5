#include "bench/tune.h"

#include <algorithm>

#include "configs/hardware.h"
#include "kernels/activation/gelu.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"
#include "kernels/system/check.h"
#include "trainer/step/rehearsal.h"

namespace megalith::bench {

namespace {
// Smaller gains are not distinguishable from noise.
constexpr double margin = 0.99;
}  // namespace

GemmCounts products_of(const std::string& path, std::vector<std::string> overrides, int ranks) {
  overrides.insert(overrides.begin(), "run.device=cuda");
  const Config config = load_config(path, overrides);
  if (ranks == 0) {
    const std::string& profile = config.hardware.profile;
    ranks =
        profile.empty() ? 1 : static_cast<int>(config.hardware.nodes * load_hardware(config.hardware).device.per_node);
  }
  GemmCounts all;
  for (int rank = 0; rank < ranks; rank += std::max(ranks - 1, 1))
    for (const auto& [shape, count] : rehearse(config, make_plan(config, ranks, rank)).gemms)
      all[shape] = std::max(all[shape], count);
  return all;
}

struct Tuner::Operands {
  Tensor a, b, c, bias, gelu_input, db;

  GemmCall call(const GemmShape& s, void* sums) const {
    return {.a = a.raw(),
            .b = b.raw(),
            .c = c.raw(),
            .bias = bias.empty() ? nullptr : bias.raw(),
            .M = s.M,
            .N = s.N,
            .K = s.K,
            .a_transposed = s.a_transposed,
            .b_transposed = s.b_transposed,
            .accumulate = s.accumulate,
            .gelu_input = s.gelu ? gelu_input.raw() : nullptr,
            .bias_gradient = s.bias_gradient ? sums : nullptr,
            .input = s.input,
            .output = s.output};
  }
};

Tensor Tuner::tensor(DType type, Shape shape) {
  const Tensor x = arena_.tensor(type, shape);
  const auto scope = arena_.scope();
  const Tensor wide = type == DType::f32 ? x : arena_.tensor(DType::f32, shape);
  launch(stream_, NormalFill{.y = wide, .seed = 1, .stream = ++filled_, .begin = 0, .std = 0.5});
  if (type != DType::f32) launch(stream_, Copy{.y = x, .x = wide});
  return x;
}

Tuner::Operands Tuner::operands(const GemmShape& s) {
  CHECK(s.alignment == GemmShape::most_alignment, "only products of tensors on {} bytes are tuned, and this has {}",
        GemmShape::most_alignment, s.alignment);
  return {.a = tensor(s.input, s.a_transposed ? Shape{s.K, s.M} : Shape{s.M, s.K}),
          .b = tensor(s.input, s.b_transposed ? Shape{s.N, s.K} : Shape{s.K, s.N}),
          .c = tensor(s.output, {s.M, s.N}),
          .bias = s.bias ? tensor(s.output, {s.N}) : Tensor(),
          .gelu_input = s.gelu ? tensor(s.output, {s.M, s.N}) : Tensor(),
          .db = s.bias_gradient ? tensor(DType::f32, {s.M}) : Tensor()};
}

double Tuner::time(const std::vector<Operands>& sets, const std::function<void(const Operands&)>& work) {
  Works works;
  for (const Operands& set : sets) works.push_back([&] { work(set); });
  return seconds_(works);
}

namespace {
// Does nothing in a build without CUDA.
void finish_bias_gradient(cuda::Queue queue, void* sums, Tensor db) {
  queue.workspace = sums;
  const auto finish = [&](auto on) { cuda::finish_bias_gradient(on, db); };
  if constexpr (has_cuda) finish(queue);
}
}  // namespace

// Returns the fastest choice with its time, that of the library's first, and candidates; none if the time is 0.
GemmChoice Tuner::fastest(const GemmShape& shape, const std::vector<Operands>& sets) {
  cuda::Queue queue = stream_.queue();
  // The sums come after the product's workspace, as in LinearBackwardWeight.
  GemmCall any = sets[0].call(shape, queue.workspace);
  void* const sums = static_cast<char*>(queue.workspace) + cuda::Gemm::room_for(any);
  GemmChoice best;
  for (const GemmChoice& candidate : gemm_.candidates(sets[0].call(shape, sums), most_)) {
    const double seconds = time(sets, [&](const Operands& set) {
      gemm_.run(queue, set.call(shape, sums), candidate);
      if (shape.bias_gradient) finish_bias_gradient(queue, sums, set.db);
    });
    const int64_t count = best.candidates + 1;
    const double first = count == 1 ? seconds : best.first_seconds;
    if (count == 1 || seconds < margin * best.seconds) {
      best = candidate;
      best.seconds = seconds;
    }
    best.first_seconds = first;
    best.candidates = count;
  }
  return best;
}

TunedProduct Tuner::tune(const GemmShape& shape) {
  const auto scope = arena_.scope();
  TunedProduct tuned{.shape = shape, .choices = {}, .why = ""};
  std::vector<Operands> sets;
  const int64_t before = arena_.used();
  do {
    sets.push_back(operands(shape));
  } while (arena_.used() - before < cold_bytes_);

  GemmShape plain = shape;
  plain.gelu = plain.bias_gradient = false;
  const GemmChoice alone = fastest(plain, sets);
  if (alone.candidates == 0) {
    tuned.why = "the library has no kernel for it";
    return tuned;
  }
  double behind = 0;
  if (shape.bias_gradient)
    behind = time(sets, [&](const Operands& set) {
      launch(stream_,
             LinearBackwardBias{.db = set.db, .dy = shape.a_transposed ? set.a : set.a.view({shape.K, shape.M})});
    });
  if (shape.gelu)
    behind = time(sets, [&](const Operands& set) {
      launch(stream_, GeluBackward{.dx = set.c, .dy = set.c, .x = set.gelu_input});
    });
  tuned.choices.push_back(alone);
  tuned.first = alone.first_seconds + behind;
  tuned.tuned = alone.seconds + behind;
  if (shape == plain) return tuned;
  const GemmChoice together = fastest(shape, sets);
  if (together.candidates == 0 || together.seconds >= margin * tuned.tuned) return tuned;
  tuned.choices.push_back(together);
  tuned.tuned = together.seconds;
  return tuned;
}

}  // namespace megalith::bench
