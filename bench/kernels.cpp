// One row per op at the shapes of GPT-2 124M (B 4, T 256) and of the small CPU recipe (4 x 128, T 64, B 12, V 65), in
// f32 and bf16. Rates come from the cost that the op states at its launch; `of_limit` is the fraction of what this
// machine was measured to do in the same run: products over the rate of a large GEMM in the same dtype, the rest over
// the bandwidth of a large copy. Data that stays in cache can pass 1.
//
// bench_kernels [--benchmark_filter=REGEX --benchmark_repetitions=5 ...]; threads are OpenMP's.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "kernels/adamw.h"
#include "kernels/arena.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/linear.h"
#include "kernels/residual.h"

namespace megalith {
namespace {

constexpr DType f32 = DType::f32, bf16 = DType::bf16;

struct Model {
  const char* name;
  int64_t B, T, C, H, V;
  int64_t parameters;
};
constexpr Model gpt2{"124M", 4, 256, 768, 12, 50257, 16 << 20};
constexpr Model small{"small", 12, 64, 128, 4, 65, 800 << 10};

double median_seconds(const std::function<void()>& f) {
  std::vector<double> times;
  for (int i = 0; i < 7; i++) {
    const auto start = std::chrono::steady_clock::now();
    f();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + 3, times.end());
  return times[3];
}

// Memory for one row, filled with small normal values so that no op meets denormals or infinities.
class Desk {
 public:
  Desk() : arena(World::cpu, "bench", int64_t{3} << 30) {}
  Tensor tensor(DType t, Shape shape) {
    const Tensor x = arena.tensor(t, shape);
    if (t == f32) {
      normal_fill(stream, x, 1, ++count_, 0, 0.5);
    } else if (t == bf16) {
      const auto scope = arena.scope();
      const Tensor wide = arena.tensor(f32, shape);
      normal_fill(stream, wide, 1, ++count_, 0, 0.5);
      copy(stream, x, wide);
    } else {
      fill(stream, x, 0);
    }
    return x;
  }
  Tensor tokens(int64_t n, int64_t V) {
    const Tensor x = arena.tensor(DType::i32, {n});
    std::mt19937 random(1);
    for (int64_t i = 0; i < n; i++) x.data<int32_t>()[i] = static_cast<int32_t>(random() % static_cast<uint32_t>(V));
    return x;
  }
  Arena arena;
  Stream stream{World::cpu};

 private:
  uint64_t count_ = 0;
};

struct Limits {
  std::map<DType, double> gemm_flops;
  double copy_bytes = 0;

  Limits() {
    Desk d;
    for (DType t : {f32, bf16}) {
      const auto scope = d.arena.scope();
      const Tensor y = d.tensor(t, {2048, 2048}), x = d.tensor(t, {2048, 2048}), w = d.tensor(t, {2048, 2048});
      gemm_flops[t] = 2.0 * 2048 * 2048 * 2048 / median_seconds([&] { linear_forward(d.stream, y, x, w, {}); });
    }
    const int64_t n = int64_t{128} << 20;
    const Tensor y = d.arena.tensor(f32, {n}), x = d.arena.tensor(f32, {n});
    fill(d.stream, x, 1);
    copy_bytes = 8.0 * double(n) / median_seconds([&] { copy(d.stream, y, x); });
  }
};
const Limits& limits() {
  static const Limits measured;
  return measured;
}

enum class Bound { gemm, memory };
using Setup = std::function<std::function<void()>(Desk&, const Model&, DType)>;

void row(const char* op, const Model& m, DType t, Bound bound, const Setup& setup) {
  benchmark::RegisterBenchmark(fmt::format("{}/{}/{}", op, m.name, name_of(t)).c_str(),
                               [=](benchmark::State& state) {
                                 Desk desk;
                                 const auto run = setup(desk, m, t);
                                 run();
                                 desk.stream.clear_log();
                                 for (auto _ : state) run();
                                 const Cost cost = desk.stream.total();
                                 double seconds = 0;
                                 for (const OpRecord& record : desk.stream.log()) seconds += record.seconds;
                                 state.counters["GFLOP/s"] = cost.flops / seconds / 1e9;
                                 state.counters["GB/s"] = cost.bytes / seconds / 1e9;
                                 state.counters["of_limit"] = bound == Bound::gemm
                                                                  ? cost.flops / seconds / limits().gemm_flops.at(t)
                                                                  : cost.bytes / seconds / limits().copy_bytes;
                               })
      ->UseRealTime()
      ->MinTime(0.2)
      ->Unit(benchmark::kMicrosecond);
}

void linear_rows(const char* name, const Model& m, DType t, int64_t I, int64_t O) {
  const int64_t N = m.B * m.T;
  row(fmt::format("linear_forward {}", name).c_str(), m, t, Bound::gemm, [=](Desk& d, const Model&, DType) {
    const Tensor y = d.tensor(t, {N, O}), x = d.tensor(t, {N, I}), w = d.tensor(t, {O, I}), b = d.tensor(t, {O});
    return [=, &d] { linear_forward(d.stream, y, x, w, O == m.V ? Tensor() : b); };
  });
  row(fmt::format("linear_backward_input {}", name).c_str(), m, t, Bound::gemm, [=](Desk& d, const Model&, DType) {
    const Tensor dx = d.tensor(t, {N, I}), dy = d.tensor(t, {N, O}), w = d.tensor(t, {O, I});
    return [=, &d] { linear_backward_input(d.stream, dx, dy, w); };
  });
  row(fmt::format("linear_backward_weight {}", name).c_str(), m, t, Bound::gemm, [=](Desk& d, const Model&, DType) {
    const Tensor dw = d.tensor(f32, {O, I}), db = d.tensor(f32, {O}), dy = d.tensor(t, {N, O}), x = d.tensor(t, {N, I});
    return [=, &d] { linear_backward_weight(d.stream, dw, O == m.V ? Tensor() : db, dy, x); };
  });
}

void rows(const Model& model, DType type) {
  linear_rows("qkv", model, type, model.C, 3 * model.C);
  linear_rows("proj", model, type, model.C, model.C);
  linear_rows("up", model, type, model.C, 4 * model.C);
  linear_rows("down", model, type, 4 * model.C, model.C);
  linear_rows("head", model, type, model.C, model.V);

  row("attention_forward", model, type, Bound::gemm, [](Desk& d, const Model& m, DType t) {
    const int64_t N = m.B * m.T;
    const Tensor out = d.tensor(t, {N, m.C}), lse = d.tensor(f32, {m.B, m.H, m.T}), qkv = d.tensor(t, {N, 3 * m.C});
    return [=, &d] { attention_forward(d.stream, out, lse, qkv, {m.B, m.T, m.H, m.C / m.H}, {}); };
  });
  row("attention_forward dropout", model, type, Bound::gemm, [](Desk& d, const Model& m, DType t) {
    const int64_t N = m.B * m.T;
    const Tensor out = d.tensor(t, {N, m.C}), lse = d.tensor(f32, {m.B, m.H, m.T}), qkv = d.tensor(t, {N, 3 * m.C});
    return [=, &d] { attention_forward(d.stream, out, lse, qkv, {m.B, m.T, m.H, m.C / m.H}, {.p = 0.1}); };
  });
  row("attention_backward", model, type, Bound::gemm, [](Desk& d, const Model& m, DType t) {
    const int64_t N = m.B * m.T;
    const AttentionDims dims{m.B, m.T, m.H, m.C / m.H};
    const Tensor out = d.tensor(t, {N, m.C}), lse = d.tensor(f32, {m.B, m.H, m.T}), qkv = d.tensor(t, {N, 3 * m.C});
    const Tensor dout = d.tensor(t, {N, m.C}), delta = d.tensor(f32, {m.B, m.H, m.T}), dqkv = d.tensor(t, {N, 3 * m.C});
    attention_forward(d.stream, out, lse, qkv, dims, {});
    return [=, &d] { attention_backward(d.stream, dqkv, delta, dout, out, lse, qkv, dims, {}); };
  });
  row("gelu_forward", model, type, Bound::memory, [](Desk& d, const Model& m, DType t) {
    const Tensor y = d.tensor(t, {m.B * m.T, 4 * m.C}), x = d.tensor(t, {m.B * m.T, 4 * m.C});
    return [=, &d] { gelu_forward(d.stream, y, x); };
  });
  row("gelu_backward", model, type, Bound::memory, [](Desk& d, const Model& m, DType t) {
    const Shape shape{m.B * m.T, 4 * m.C};
    const Tensor dx = d.tensor(t, shape), dy = d.tensor(t, shape), x = d.tensor(t, shape);
    return [=, &d] { gelu_backward(d.stream, dx, dy, x); };
  });
  row("layernorm_forward", model, type, Bound::memory, [](Desk& d, const Model& m, DType t) {
    const int64_t N = m.B * m.T;
    const Tensor y = d.tensor(t, {N, m.C}), stat = d.tensor(f32, {N, 2}), x = d.tensor(t, {N, m.C});
    const Tensor w = d.tensor(t, {m.C}), b = d.tensor(t, {m.C});
    return [=, &d] { layernorm_forward(d.stream, y, stat, x, w, b); };
  });
  row("layernorm_backward", model, type, Bound::memory, [](Desk& d, const Model& m, DType t) {
    const int64_t N = m.B * m.T;
    const Tensor dx = d.tensor(t, {N, m.C}), dw = d.tensor(f32, {m.C}), db = d.tensor(f32, {m.C});
    const Tensor dy = d.tensor(t, {N, m.C}), x = d.tensor(t, {N, m.C}), stat = d.tensor(f32, {N, 2}),
                 w = d.tensor(t, {m.C});
    fill(d.stream, dx, 0);
    fill(d.stream, dy, 0);  // dx accumulates over all iterations
    return [=, &d] { layernorm_backward(d.stream, dx, dw, db, dy, x, stat, w); };
  });
  for (double p : {0.0, 0.1}) {
    row(p > 0 ? "residual_forward dropout" : "residual_forward", model, type, Bound::memory,
        [p](Desk& d, const Model& m, DType t) {
          const Shape shape{m.B * m.T, m.C};
          const Tensor y = d.tensor(t, shape), x = d.tensor(t, shape), h = d.tensor(t, shape), b = d.tensor(t, {m.C});
          return [=, &d] { residual_forward(d.stream, y, x, h, b, {.p = p}); };
        });
    row(p > 0 ? "residual_backward dropout" : "residual_backward", model, type, Bound::memory,
        [p](Desk& d, const Model& m, DType t) {
          const Shape shape{m.B * m.T, m.C};
          const Tensor dy = d.tensor(t, shape), dh = p > 0 ? d.tensor(t, shape) : dy, db = d.tensor(f32, {m.C});
          return [=, &d] { residual_backward(d.stream, dh, db, dy, {.p = p}); };
        });
  }
  row("embedding_forward", model, type, Bound::memory, [](Desk& d, const Model& m, DType t) {
    const int64_t N = m.B * m.T;
    const Tensor y = d.tensor(t, {N, m.C}), wte = d.tensor(t, {m.V, m.C}), wpe = d.tensor(t, {m.T, m.C});
    const Tensor tokens = d.tokens(N, m.V);
    return [=, &d] { embedding_forward(d.stream, y, tokens, wte, wpe, m.T, whole_vocabulary(m.V)); };
  });
  row("embedding_backward", model, type, Bound::memory, [](Desk& d, const Model& m, DType t) {
    const int64_t N = m.B * m.T;
    const Tensor dwte = d.tensor(f32, {m.V, m.C}), dwpe = d.tensor(f32, {m.T, m.C}), dy = d.tensor(t, {N, m.C});
    const Tensor tokens = d.tokens(N, m.V);
    return [=, &d] { embedding_backward(d.stream, dwte, dwpe, dy, tokens, m.T, whole_vocabulary(m.V)); };
  });
  row("cross_entropy_forward", model, type, Bound::memory, [](Desk& d, const Model& m, DType t) {
    const int64_t N = m.B * m.T;
    const Tensor losses = d.tensor(f32, {N}), logits = d.tensor(t, {N, m.V}), targets = d.tokens(N, m.V);
    return [=, &d] { cross_entropy_forward(d.stream, losses, logits, targets, whole_vocabulary(m.V)); };
  });
  row("cross_entropy_forward_backward", model, type, Bound::memory, [](Desk& d, const Model& m, DType t) {
    const int64_t N = m.B * m.T;
    const Tensor losses = d.tensor(f32, {N}), logits = d.tensor(t, {N, m.V}), targets = d.tokens(N, m.V);
    return [=, &d] {
      cross_entropy_forward_backward(d.stream, losses, logits, targets, whole_vocabulary(m.V), 1.0 / double(N));
    };
  });
  row("adamw_update", model, type, Bound::memory, [](Desk& d, const Model& m, DType t) {
    const Shape shape{m.parameters};
    const Tensor master = d.tensor(f32, shape), m1 = d.tensor(f32, shape), v = d.tensor(f32, shape),
                 g = d.tensor(f32, shape);
    const Tensor working = t == f32 ? Tensor() : d.tensor(t, shape), scale = d.arena.tensor(DType::f64, {1});
    fill(d.stream, v, 1);
    fill(d.stream, scale, 1);
    return [=, &d] { adamw_update(d.stream, master, m1, v, working, g, scale, {.learning_rate = 1e-4, .update = 9}); };
  });
  if (type == bf16) return;
  row("accumulate_square_sum", model, type, Bound::memory, [](Desk& d, const Model& m, DType) {
    const Tensor x = d.tensor(f32, {m.parameters}), out = d.tensor(DType::f64, {1});
    return [=, &d] { accumulate_square_sum(d.stream, out, x); };
  });
  row("fill", model, type, Bound::memory, [](Desk& d, const Model& m, DType) {
    const Tensor x = d.tensor(f32, {m.parameters});
    return [=, &d] { fill(d.stream, x, 0); };
  });
  row("normal_fill", model, type, Bound::memory, [](Desk& d, const Model& m, DType) {
    const Tensor x = d.tensor(f32, {m.parameters});
    return [=, &d] { normal_fill(d.stream, x, 1, 2, 0, 0.02); };
  });
}

}  // namespace
}  // namespace megalith

int main(int argc, char** argv) {
  using namespace megalith;
  benchmark::Initialize(&argc, argv);
  for (const Model& m : {gpt2, small})
    for (DType t : {f32, bf16}) rows(m, t);
  fmt::print("{} threads; GEMM 2048^3: f32 {:.0f} GFLOP/s, bf16 {:.0f} GFLOP/s; copy {:.1f} GB/s\n",
             omp_get_max_threads(), limits().gemm_flops.at(f32) / 1e9, limits().gemm_flops.at(bf16) / 1e9,
             limits().copy_bytes / 1e9);
  benchmark::RunSpecifiedBenchmarks();
}
