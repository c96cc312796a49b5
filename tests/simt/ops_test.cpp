// Every case of tests/kernels on the CUDA ops, run by the machine of simt.h (GEMMs are a library's, here gemm.cpp):
// against its twin with the CPU op's own tolerance, on aligned and misaligned memory, and the same bits twice. And
// widths of real models, one row or a few.
#include <gtest/gtest.h>

#include "cases.h"
#include "kernels/cross_entropy.h"
#include "kernels/gemm_cuda.h"
#include "tests/simt/simt.h"

namespace megalith::test {
namespace {

// The arguments of a case in device memory. What an op only writes starts out with values, as for the CPU.
class Device {
 public:
  Device(const Case& c, int64_t offset) : case_(c), host_(c, 0) {
    simt::clear_memory();
    for (size_t a = 0; a < c.args.size(); a++) {
      const Arg& arg = c.args[a];
      if (arg.shape.num_dims() == 0) {
        tensors_.emplace_back();
        continue;
      }
      const Tensor from = host_.memory[a].tensor();
      const auto contents = !arg.written  ? simt::Contents::read_only
                            : arg.scratch ? simt::Contents::unwritten
                                          : simt::Contents::written;
      void* p = simt::allocate(arg.name, from.bytes(), contents, offset * size_of(arg.dtype));
      std::memcpy(p, from.raw(), static_cast<size_t>(from.bytes()));
      tensors_.emplace_back(p, arg.dtype, arg.shape);
    }
    void* workspace = simt::allocate("the workspace", cuda::workspace_bytes, simt::Contents::unwritten);
    cuda::Gemm gemm;
    Stream s(World::cuda, {.stream = nullptr, .workspace = workspace, .gemm = &gemm});
    c.run(s, tensors_);
    for (size_t a = 0; a < c.args.size(); a++)
      if (!tensors_[a].empty())
        std::memcpy(host_.memory[a].tensor().raw(), tensors_[a].raw(), static_cast<size_t>(tensors_[a].bytes()));
  }
  const Memory& memory(size_t a) const { return host_.memory[a]; }
  std::vector<std::vector<unsigned char>> bits() const {
    std::vector<std::vector<unsigned char>> all;
    for (const Memory& m : host_.memory) all.push_back(m.bits());
    return all;
  }

 private:
  const Case& case_;
  Memories host_;
  std::vector<Tensor> tensors_;
};

bool is_attention(const Case& c) { return c.op == "attention_forward" || c.op == "attention_backward"; }

// Attention in bf16 rounds its probabilities, and their gradients, for the tensor cores: half a unit of what they
// weigh, in sums of any sign. Where memory is not aligned for these, it does not.
double rounded_weights(const Case& c, const Arg& arg, int64_t offset, double largest) {
  return is_attention(c) && offset == 0 && arg.dtype == DType::bf16 ? 0x1p-9 * largest : 0;
}

void agrees_with_its_twin(const Case& c, int64_t offset) {
  SCOPED_TRACE(c.name() + fmt::format(" offset {}", offset));
  Doubles want = doubles(c);
  c.twin(want);
  const Device got(c, offset);
  for (size_t a = 0; a < c.args.size(); a++) {
    const Arg& arg = c.args[a];
    if (arg.scratch || !arg.written) continue;
    const Values& values = want[arg.name];
    double largest = 0;
    for (double v : values)
      if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
    for (int64_t i = 0; i < arg.shape.numel(); i++) {
      const double v = values[static_cast<size_t>(i)], is = got.memory(a).get(i);
      if (is == v) continue;
      ASSERT_LE(std::abs(is - v), tolerance(arg.dtype, v, largest) + rounded_weights(c, arg, offset, largest))
          << arg.name << "[" << i << "] is " << is << ", the twin has " << v;
    }
  }
}

void same_bits_twice(const Case& c) {
  SCOPED_TRACE(c.name());
  const auto one = Device(c, 0).bits(), two = Device(c, 0).bits();
  for (size_t a = 0; a < one.size(); a++)
    if (!c.args[a].scratch) {
      EXPECT_EQ(one[a], two[a]) << c.args[a].name;
    }
}

class SimtOps : public testing::TestWithParam<Op> {};

TEST_P(SimtOps, AgreesWithItsTwin) {
  for (const Case& c : GetParam().cases()) {
    for (int64_t offset : {0, 1, 3})
      if (offset < 3 || !is_attention(c)) agrees_with_its_twin(c, offset);  // slow, and 3 is as unaligned as 1
    same_bits_twice(c);
  }
}
INSTANTIATE_TEST_SUITE_P(All, SimtOps, testing::ValuesIn(all_ops()), [](const auto& of) { return of.param.name; });

// The widths of the models of configs/, one beyond what registers hold, and one that no vector fits.
TEST(SimtWidths, LayerNorm) {
  for (DType t : {DType::f32, DType::bf16})
    for (int64_t C : {64, 520, 768, 1600, 2048, 4096, 5120, 7168, 8192, 8200, 4001})
      for (const Case& c : {layernorm_forward_case(2, C, t), layernorm_backward_case(3, C, t)})
        agrees_with_its_twin(c, 0);
  // Enough rows for every block to take several.
  agrees_with_its_twin(layernorm_backward_case(2200, 8, DType::bf16), 0);
}

// Groups of 64 columns that are not whole, strips of 256 likewise, and rows enough for every block to take several.
TEST(SimtWidths, Residual) {
  for (DType t : {DType::f32, DType::bf16})
    for (double p : {0.0, 0.25}) {
      for (int64_t C : {768, 1032, 1001})
        for (const Case& c :
             {dropout_case(2, C, p, t), residual_forward_case(2, C, p, t), residual_backward_case(9, C, p, t)})
          agrees_with_its_twin(c, 0);
      agrees_with_its_twin(residual_backward_case(700, 320, p, t), 0);
    }
}

// Tokens whose rows fill several chunks of the order, and keys of two and of three digits.
TEST(SimtWidths, Embedding) {
  for (DType t : {DType::f32, DType::bf16}) {
    for (const Case& c :
         {embedding_backward_case(3, 150, 16, {0, 3, 3}, 0, t),
          embedding_backward_case(3, 150, 16, {0, 300, 300}, 4, t),
          embedding_backward_case(2, 20, 8, {30000, 66000, 96000}, 0, t),
          embedding_forward_case(1, 3, 1600, {0, 5, 5}, 0, t), embedding_backward_case(1, 3, 1600, {0, 5, 5}, 0, t)})
      agrees_with_its_twin(c, 0);
    same_bits_twice(embedding_backward_case(3, 150, 16, {0, 3, 3}, 0, t));
  }
}

// The vocabulary of GPT-2, padded: rows of bf16 fit into shared memory, those of f32 do not.
TEST(SimtWidths, CrossEntropy) {
  for (DType t : {DType::f32, DType::bf16})
    for (const Case& c :
         {cross_entropy_forward_case(1, 50257, 47, t), cross_entropy_forward_backward_case(2, 50257, 47, t),
          softmax_part_case(1, {0, 50257, 50257}, 47, t), cross_entropy_gradient_case(1, {0, 50257, 50257}, 47, t)})
      agrees_with_its_twin(c, 0);
}

// Every head size of the tensor cores, and lengths about the edges of tiles.
TEST(SimtWidths, Attention) {
  for (const AttentionDims& dims : {AttentionDims{1, 1, 1, 64},
                                    {2, 17, 1, 80},
                                    {1, 33, 2, 96},
                                    {1, 129, 1, 112, 3},
                                    {1, 65, 1, 128},
                                    {1, 200, 1, 64}})
    for (double p : {0.0, 0.2}) {
      agrees_with_its_twin(attention_forward_case(dims, p, DType::bf16), 0);
      agrees_with_its_twin(attention_backward_case(dims, p, DType::bf16), 0);
    }
}

// Masks and initial values are the CPU's, to the bit. (On a device log, sin and cos may differ in their last.)
TEST(SimtBits, RandomNumbersAreThoseOfTheCpu) {
  for (const Case& c : {dropout_case(5, 200, 0.3, DType::f32), dropout_case(5, 203, 0.3, DType::bf16),
                        normal_fill_case(1001, 515, {}), normal_fill_case(5, 515, {7, 33, 50})}) {
    SCOPED_TRACE(c.name());
    const Memories host(c, 0);
    Stream s(World::cpu);
    c.run(s, host.tensors());
    EXPECT_EQ(Device(c, 0).bits()[0], host.memory[0].bits());
  }
}

TEST(SimtBits, OnePartOfTheVocabularyIsTheWhole) {
  constexpr int64_t N = 5, V = 5003, padding = 5;
  constexpr double scale = 0.3;
  const VocabularyPart part = whole_vocabulary(V);
  for (DType t : {DType::f32, DType::bf16})
    for (int64_t offset : {0, 1}) {
      Case whole = cross_entropy_forward_backward_case(N, V, padding, t);
      whole.run = [&](Stream& s, const Tensors& a) {
        cross_entropy_forward_backward(s, a[0], a[1], a[2], part, scale);
      };
      Case parts = whole;
      parts.run = [&](Stream& s, const Tensors& a) {
        const auto make = [](const char* name, const Shape& shape) {
          void* p = simt::allocate(name, shape.numel() * 4, simt::Contents::unwritten);
          return Tensor(p, DType::f32, shape);
        };
        const Tensor stats = make("stats", {3, N}), max = make("max", {N});
        softmax_part(s, stats, a[1], a[2], part);
        copy(s, max, Tensor(stats.raw(), DType::f32, {N}));
        merge_softmax(s, stats, max);
        cross_entropy_loss(s, a[0], stats, a[2]);
        cross_entropy_gradient(s, a[1], stats, a[2], part, scale);
      };
      EXPECT_EQ(Device(whole, offset).bits(), Device(parts, offset).bits());
    }
}

// A device cannot throw, so that a number that is no token must be seen in the result.
TEST(SimtBits, WhatIsNoTokenGivesNaN) {
  Case loss = cross_entropy_forward_case(3, 17, 2, DType::f32);
  loss.args[2].values = {4, 17, 2};
  const Device losses(loss, 0);
  EXPECT_TRUE(std::isfinite(losses.memory(0).get(0)));
  EXPECT_TRUE(std::isnan(losses.memory(0).get(1)));
  Case rows = embedding_forward_case(1, 2, 8, {0, 11, 11}, 0, DType::bf16);
  rows.args[1].values = {3, -1};
  const Device embedded(rows, 0);
  EXPECT_TRUE(std::isfinite(embedded.memory(0).get(7)));
  EXPECT_TRUE(std::isnan(embedded.memory(0).get(8)));
}

}  // namespace
}  // namespace megalith::test
