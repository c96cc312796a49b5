// Shapes of real models on the GPU: GPT-2 124M and 1558M, every head size of the tensor cores at lengths up to 4096, a
// vocabulary of 50257 and parts of it, and tensors of more than 2^31 elements. Twins where they are quick enough; GEMMs
// on whole numbers, where every bit must be right; attention against the CPU op.
#include "cases.h"
#include "kernels/activation/gelu.h"
#include "kernels/linear/device_queue.h"
#include "kernels/stream/arena.h"
#include "tests/device/device.h"

namespace megalith::test {
namespace {

using ModelShapes = OnDevice;

void holds(const Case& c) { gives_again(agrees_with_its_twin(c), c); }

Memories on_cpu(const Case& c) {
  Memories memories(c, 0);
  Stream s(World::cpu);
  c.run(s, memories.tensors());
  return memories;
}

TEST_F(ModelShapes, Rows) {
  for (auto [N, C] : {std::pair<int64_t, int64_t>{1024, 768}, {600, 1600}, {200, 7168}}) {
    holds(layernorm_forward_case(N, C, bf16));
    holds(layernorm_backward_case(N, C, bf16));
    holds(gelu_forward_case(N, 4 * C, bf16));
    holds(gelu_backward_case(N, 4 * C, bf16));
    holds(residual_forward_case(N, C, 0.1, bf16));
    holds(residual_backward_case(N, C, 0.1, bf16));
    holds(residual_backward_case(N, C, 0, bf16));
    for (double p : {0.0, 0.5}) {
      holds(residual_layernorm_forward_case(N, C, p, bf16));
      holds(residual_layernorm_backward_case(N, C, p, bf16));
    }
  }
  holds(layernorm_backward_case(4096, 768, f32));
}

TEST_F(ModelShapes, Vocabulary) {
  for (const Case& c :
       {cross_entropy_forward_case(256, 50257, 47, bf16), cross_entropy_forward_backward_case(256, 50257, 47, bf16),
        cross_entropy_forward_backward_case(64, 50257, 47, f32),
        cross_entropy_forward_backward_case(64, 50257, 0, bf16),
        softmax_part_case(256, {25152, 25105, 50257}, 47, bf16),
        cross_entropy_gradient_case(256, {25152, 25105, 50257}, 47, bf16),
        softmax_part_case(64, {0, 25152, 50257}, 0, f32), cross_entropy_gradient_case(64, {0, 25152, 50257}, 0, f32),
        embedding_forward_case(4, 1024, 768, {0, 50257, 50257}, 47, bf16),
        embedding_backward_case(4, 1024, 768, {12576, 12576, 50257}, 0, bf16),
        embedding_backward_case(2, 1024, 1600, {0, 6288, 50257}, 0, f32)})
    holds(c);
}

TEST_F(ModelShapes, FlatShards) {
  holds(adamw_case(4000003, 100, true, bf16));
  holds(accumulate_sum_case(10000019));
  holds(accumulate_square_sum_case(10000019));
  holds(copy_case(10000019, bf16, f32));
  holds(add_case(10000019, f32));
  holds(normal_fill_case(3, 4000003, {}));
}

// Sums of whole numbers below 2^24 are exact in f32, in any order and on any unit.
void exact_on_whole_numbers(Case c) {
  SCOPED_TRACE(c.name());
  for (Arg& arg : c.args)
    for (double& v : arg.values) v = std::round(v * 2);
  const Memories want = on_cpu(c), got = on_device(c, 0);
  for (size_t a = 0; a < c.args.size(); a++)
    if (c.args[a].written) {
      EXPECT_TRUE(got.memory[a].bits() == want.memory[a].bits()) << c.args[a].name;
    }
}

TEST_F(ModelShapes, LinearIsExactOnWholeNumbers) {
  struct Layer {
    int64_t N, I, O;
  };
  for (DType t : {bf16, f32})
    for (auto [N, I, O] : {Layer{512, 768, 2304}, {512, 3072, 768}, {512, 1600, 4800}, {512, 6400, 1600}}) {
      exact_on_whole_numbers(linear_forward_case(N, I, O, true, t));
      exact_on_whole_numbers(linear_backward_input_case(N, I, O, t));
      exact_on_whole_numbers(linear_backward_weight_case(N, I, O, true, t));
    }
  for (int64_t V : {50304, 50257}) {  // padded, and not even a multiple of 2
    exact_on_whole_numbers(linear_forward_case(128, 768, V, false, bf16));
    exact_on_whole_numbers(linear_backward_input_case(128, 768, V, bf16));
    exact_on_whole_numbers(linear_backward_weight_case(128, 768, V, false, bf16));
  }
}

TEST_F(ModelShapes, GeluWithItsProduct) {
  for (DType t : {bf16, f32})
    for (int64_t C : {768, 1600}) {
      holds(linear_gelu_forward_case(64, C, 4 * C, t));
      holds(linear_backward_input_gelu_case(64, 4 * C, C, t));
    }
}

// Both are within its tolerance of the truth, or so they are at small shapes.
void agrees_with_the_cpu(const Case& c) {
  SCOPED_TRACE(c.name());
  const Memories want = on_cpu(c), got = on_device(c, 0);
  for (size_t a = 0; a < c.args.size(); a++) {
    const Arg& arg = c.args[a];
    if (arg.scratch || !arg.written) continue;
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < arg.shape.numel(); i++) largest = std::max(largest, std::abs(want.memory[a].get(i)));
    for (int64_t i = 0; i < arg.shape.numel(); i++) {
      const double v = want.memory[a].get(i), is = got.memory[a].get(i);
      const double part =
          std::abs(is - v) / (2 * tolerance(arg.dtype, v, largest) + rounded_weights(c, arg, 0, largest));
      worst = std::max(worst, std::isfinite(part) ? part : INFINITY);
    }
    EXPECT_LE(worst, 1) << arg.name << ": its worst element, as a part of what is allowed";
  }
  gives_again(bits_of(got), c);
}

// With the results of the CPU's forward pass, for the twin's would take minutes.
Case backward_case(const AttentionDims& dims, double p, DType t) {
  const Case forward = attention_forward_case(dims, p, t);
  const Memories of_cpu = on_cpu(forward);
  const int64_t N = dims.B * dims.T, C = dims.H * dims.D;
  const Shape rows{dims.B, dims.H, dims.T};
  Case c{.op = "attention_backward",
         .shape = forward.shape,
         .dtype = t,
         .args = {out("dqkv", t, {N, 3 * C}), out("delta", f32, rows), in("dout", t, {N, C}), in("out", t, {N, C}),
                  in("lse", f32, rows), forward.args[2], attention_scratch(dims, t)},
         .run =
             [=](Stream& s, const Tensors& a) {
               launch(s, AttentionBackward{.dqkv = a[0],
                                           .delta = a[1],
                                           .dout = a[2],
                                           .out = a[3],
                                           .lse = a[4],
                                           .qkv = a[5],
                                           .dims = dims,
                                           .dropout = {.p = p, .seed = 11, .step = 3, .site = 5, .first_row = 1000},
                                           .scratch = a[6]});
             },
         .twin = {}};
  c.args[1].scratch = true;
  for (int64_t i = 0; i < N * C; i++) c.args[3].values[at(i)] = of_cpu.memory[0].get(i);
  for (int64_t i = 0; i < rows.numel(); i++) c.args[4].values[at(i)] = of_cpu.memory[1].get(i);
  return c;
}

TEST_F(ModelShapes, Attention) {
  struct Attention {
    AttentionDims dims;
    double p;
    DType t;
  };
  for (const auto& [dims, p, t] : {Attention{{2, 1024, 2, 64}, 0, bf16},
                                   {{1, 1024, 12, 64}, 0.1, bf16},
                                   {{1, 1024, 25, 64}, 0, bf16},
                                   {{1, 4096, 1, 64}, 0, bf16},
                                   {{1, 2048, 2, 80}, 0, bf16},
                                   {{1, 1500, 3, 80}, 0.1, bf16},
                                   {{2, 1024, 1, 96}, 0, bf16},
                                   {{1, 2048, 1, 112}, 0, bf16},
                                   {{1, 4096, 2, 112}, 0.1, bf16},
                                   {{1, 1025, 2, 128}, 0, bf16},
                                   {{1, 4096, 2, 128}, 0, bf16},
                                   {{1, 1024, 2, 64}, 0, f32},
                                   {{1, 1030, 1, 128}, 0.1, f32}}) {
    agrees_with_the_cpu(attention_forward_case(dims, p, t));
    agrees_with_the_cpu(backward_case(dims, p, t));
  }
}

// Where indices of 32 bits end.
TEST_F(ModelShapes, MoreElementsThanAnIntCounts) {
  constexpr int64_t rows = 131073, cols = 16400, n = rows * cols;
  static_assert(n > int64_t{1} << 31);
  device::select(0);
  if (device::properties().free < 3 * n * 2) GTEST_SKIP() << "needs 12 GiB of free memory on the GPU";
  DeviceQueue queue;
  Stream s(World::cuda, queue.queue());
  Arena arena(World::cuda, "tensors", 2 * n * 2 + 1024);
  const Tensor x = arena.tensor(bf16, {rows, cols}), y = arena.tensor(bf16, {rows, cols});
  std::map<int64_t, std::pair<float, float>> found;  // place -> x, y
  const auto look = [&] {
    for (int64_t i : {int64_t{0}, (int64_t{1} << 31) - 1, int64_t{1} << 31, n - 1}) {
      s.download("x", x.flat(i, i + 1), [&, i](Tensor t) { found[i].first = static_cast<float>(*t.data<bfloat16>()); });
      s.download("y", y.flat(i, i + 1),
                 [&, i](Tensor t) { found[i].second = static_cast<float>(*t.data<bfloat16>()); });
    }
    s.synchronize();
  };
  launch(s, Fill{.y = x, .value = 3});
  launch(s, Fill{.y = y, .value = 0});
  launch(s, Fill{.y = x.flat(n - 1, n), .value = -3});
  launch(s, Copy{.y = y, .x = x});
  look();
  for (const auto& [i, values] : found) {
    EXPECT_EQ(values.first, i == n - 1 ? -3 : 3) << i;
    EXPECT_EQ(values.second, values.first) << i;
  }
  launch(s, GeluForward{.y = y, .x = x});
  look();
  for (const auto& [i, values] : found) EXPECT_NEAR(values.second, i == n - 1 ? -0.0036 : 2.9964, 0.01) << i;
}

}  // namespace
}  // namespace megalith::test
