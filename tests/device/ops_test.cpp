// Every case of tests/kernels on the CUDA ops, on whatever device this is linked with (device.h): against its twin with
// the CPU op's own tolerance, on aligned and misaligned memory, and the same bits twice. And widths of real models, one
// row or a few.
#include <gtest/gtest-spi.h>

#include "cases.h"
#include "kernels/attention/hopper_grid.h"
#include "kernels/loss/cross_entropy.h"
#include "tests/device/device.h"
#include "tests/long_tests.h"

namespace megalith::test {
namespace {

class DeviceOps : public OnDevice, public testing::WithParamInterface<Op> {};

TEST_P(DeviceOps, AgreesWithItsTwin) {
  if (GetParam().name == std::string("fp8_product") && !device::properties().has_fp8())
    GTEST_SKIP() << "this GPU has no products in 8 bits";
  for (const Case& c : GetParam().cases()) {
    gives_again(agrees_with_its_twin(c), c);
    // What is no multiple of 8 is all one to the kernels; attention in f32 has one for all memory, and a slow one.
    if (!c.aligned && (!c.op.starts_with("attention") || c.dtype != DType::f32)) agrees_with_its_twin(c, 1);
  }
}
INSTANTIATE_TEST_SUITE_P(All, DeviceOps, testing::ValuesIn(all_ops()), [](const auto& of) { return of.param.name; });

// Others of the same op follow it.
TEST(DeviceCases, ACaseThatThrowsFailsAlone) {
  if (const std::string why = no_device(); !why.empty()) GTEST_SKIP() << why;
  Case c = gelu_forward_case(2, 8, DType::f32);
  const Bits bits = agrees_with_its_twin(c);
  c.run = [](Stream&, const Tensors&) { FAIL("planted"); };
  EXPECT_NONFATAL_FAILURE(EXPECT_TRUE(agrees_with_its_twin(c).empty()), "gelu_forward 2x8 f32: planted");
  EXPECT_NONFATAL_FAILURE(gives_again(bits, c), "gelu_forward 2x8 f32: planted");
  gives_again({}, c);
}

using DeviceWidths = OnDevice;
using DeviceBits = OnDevice;

// The widths of the models of configs/, one beyond what registers hold, and one that no vector fits.
TEST_F(DeviceWidths, LayerNorm) {
  for (const Types t : {Types(f32), Types(bf16), Types(bf16, f32)})
    for (int64_t C : {64, 520, 768, 1600, 2048, 4096, 5120, 7168, 8192, 8200, 4001})
      for (const Case& c : {layernorm_forward_case(2, C, t), layernorm_backward_case(3, C, t)}) agrees_with_its_twin(c);
  for (const Case& c : {layernorm_forward_case(2, 768, DType::f16), layernorm_backward_case(3, 4096, DType::f16)})
    agrees_with_its_twin(c);
  // Enough rows for every block to take several.
  agrees_with_its_twin(layernorm_backward_case(2200, 8, DType::bf16));
}

// With every way of a mask's lanes to share its blocks: groups of 64 columns that are not whole, and rows of several
// warps.
TEST_F(DeviceWidths, ResidualLayerNorm) {
  for (const Types t : {Types(f32), Types(bf16), Types(bf16, f32)})
    for (double p : {0.0, 0.5})
      for (int64_t C : {64, 520, 768, 1600, 3200, 7168, 4001})
        for (const Case& c :
             {residual_layernorm_forward_case(2, C, p, t), residual_layernorm_backward_case(3, C, p, t)})
          agrees_with_its_twin(c);
  agrees_with_its_twin(residual_layernorm_backward_case(2200, 8, 0.5, DType::bf16));
}

// Groups of 64 columns that are not whole, strips of 256 likewise, and rows enough for every block to take several.
TEST_F(DeviceWidths, Residual) {
  for (DType t : {DType::f32, DType::bf16})
    for (double p : {0.0, 0.25}) {
      for (int64_t C : {768, 1032, 1001})
        for (const Case& c :
             {dropout_case(2, C, p, t), residual_forward_case(2, C, p, t), residual_backward_case(9, C, p, t)})
          agrees_with_its_twin(c);
      agrees_with_its_twin(residual_backward_case(700, 320, p, t));
    }
}

// Tokens whose rows fill several chunks of the order, and keys of two and of three digits.
TEST_F(DeviceWidths, Embedding) {
  for (DType t : {DType::f32, DType::bf16}) {
    for (const Case& c :
         {embedding_backward_case(3, 150, 16, {0, 3, 3}, 0, t),
          embedding_backward_case(3, 150, 16, {0, 300, 300}, 4, t),
          embedding_backward_case(2, 20, 8, {30000, 66000, 96000}, 0, t),
          embedding_forward_case(1, 3, 1600, {0, 5, 5}, 0, t), embedding_backward_case(1, 3, 1600, {0, 5, 5}, 0, t)})
      gives_again(agrees_with_its_twin(c), c);
  }
}

// The vocabulary of GPT-2, padded: rows of bf16 fit into shared memory, those of f32 do not.
TEST_F(DeviceWidths, CrossEntropy) {
  for (DType t : {DType::f32, DType::bf16})
    for (const Case& c :
         {cross_entropy_forward_case(1, 50257, 47, t), cross_entropy_forward_backward_case(2, 50257, 47, t),
          softmax_part_case(1, {0, 50257, 50257}, 47, t), cross_entropy_gradient_case(1, {0, 50257, 50257}, 47, t)})
      agrees_with_its_twin(c);
  // The longest row that fits into a block's memory with what is reduced there, and the next.
  for (int64_t V : {50624, 50632})
    agrees_with_its_twin(cross_entropy_forward_backward_case(1, V, 0, DType::bf16), 0, small_ampere);
}

// About as much shared memory as CUDA gives a block unasked, and more.
TEST_F(DeviceWidths, SharedMemoryBeyondWhatIsGivenUnasked) {
  for (int64_t bytes : {48 * 1024 - 1008, 48 * 1024}) {
    agrees_with_its_twin(cross_entropy_forward_backward_case(2, bytes / 4, 0, DType::f32));
    agrees_with_its_twin(cross_entropy_forward_backward_case(2, bytes / 2, 0, DType::bf16));
  }
  for (int64_t D : {125, 128, 192})
    for (DType t : {DType::f32, DType::bf16})
      agrees_with_its_twin(attention_backward_case({1, 33, 1, D}, 0, t), t == DType::f32 ? 0 : 1);
  for (int64_t D : {281, 384}) agrees_with_its_twin(attention_forward_case({1, 33, 1, D}, 0, DType::f32));
}

// Returns whether other chips and types of the following tests have all that these have.
bool has_nothing_new(const cuda::Chip& chip, DType type, double dropout) {
  const bool small = chip.shared_memory == small_ampere.shared_memory;
  return small ? type == DType::f16 || dropout == 0 : type == DType::f16 && dropout == 0;
}

// Every head size of the tensor cores, lengths about the edges of tiles, and the products of warps that every GPU has
// beside those of its own generation, in tiles of all sizes.
TEST_F(DeviceWidths, Attention) {
  for (const AttentionDims& dims : {AttentionDims{1, 1, 1, 64},
                                    {2, 17, 1, 80},
                                    {1, 33, 2, 96},
                                    {1, 129, 1, 112, 3},
                                    {1, 65, 1, 128},
                                    {1, 200, 1, 64},
                                    {1, 260, 1, 128},
                                    {1, 129, 6, 64, 3, 2},
                                    {1, 260, 4, 80, 0, 1}})
    for (double p : {0.0, 0.2})
      for (const cuda::Chip& chip : {ampere, small_ampere, own_chip})
        for (DType t : {DType::bf16, DType::f16}) {
          if (t == DType::f16 && dims.T > 129) continue;  // every head size, but not every length
          if (has_nothing_new(chip, t, p) && !taken("DeviceWidths.Attention")) continue;
          for (const Case& c : {attention_forward_case(dims, p, t), attention_backward_case(dims, p, t)}) {
            const Bits bits = agrees_with_its_twin(c, 0, chip);
            if (chip.generation == own_chip.generation && t == DType::bf16 && dims.T <= 129) gives_again(bits, c);
          }
        }
}

// Documents that begin and end at every place of tiles, in all kernels: every multiple of 11 within 300 positions is as
// many residues of 16, 32, 64 and 128 as there are; tiles of both sides between which there is nothing to see; one that
// begins with the last key of a tile and goes on behind it; and others in each sequence.
TEST_F(DeviceWidths, AttentionOfDocuments) {
  struct Packed {
    AttentionDims dims;
    Documents documents;
  };
  for (const Packed& one : {Packed{{1, 300, 1, 64}, {11}},
                            {{2, 17, 1, 80}, {16, 1, 5}},
                            {{1, 257, 1, 96}, {128, 1, 127}},
                            {{1, 129, 2, 112, 3}, {127, 2}},
                            {{1, 200, 1, 128}, {63, 1, 65, 3}},
                            {{1, 390, 1, 64}, {20, 300, 1}},
                            {{2, 140, 4, 64, 0, 2}, {11, 70, 1}}})
    for (double p : {0.0, 0.2})
      for (const cuda::Chip& chip : {ampere, small_ampere, own_chip})
        for (DType t : {DType::bf16, DType::f16}) {
          if ((t == DType::f16 || p > 0) && one.dims.T > 200) continue;  // every head size, but not every length
          if (has_nothing_new(chip, t, p) && !taken("DeviceWidths.AttentionOfDocuments")) continue;
          agrees_with_its_twin(attention_forward_case(one.dims, p, t, one.documents), 0, chip);
          agrees_with_its_twin(attention_backward_case(one.dims, p, t, one.documents), 0, chip);
        }
}

// Hopper's backward pass takes the heads of a group together or apart, by the shape.
TEST_F(DeviceBits, AttentionOfGroupsTogetherAndApart) {
  struct Grouped {
    AttentionDims dims;
    bool apart;
  };
  for (const Grouped& one : {Grouped{{1, 300, 4, 64, 0, 1}, true},
                             {{2, 140, 7, 64, 0, 1}, true},
                             {{1, 260, 8, 128, 0, 1}, true},
                             {{1, 140, 16, 64, 0, 1}, true},
                             {{1, 130, 72, 64, 0, 18}, false},
                             {{4, 20, 28, 64, 0, 4}, false},
                             {{1, 20, 112, 128, 0, 14}, false},
                             {{5, 20, 32, 64, 0, 2}, false}}) {
    const auto grid =
        cuda::attention::backward_grid({one.dims.B * one.dims.H, one.dims.B * one.dims.kv(), one.dims.T, one.dims.D});
    EXPECT_EQ(grid.apart, one.apart) << one.dims.H << " heads, " << one.dims.kv() << " of keys";
    for (double p : {0.0, 0.2})
      for (const Documents& documents : {Documents{}, Documents{7, 150, 20}}) {
        if ((p > 0) == documents.empty() && !taken("DeviceBits.AttentionOfGroupsTogetherAndApart")) continue;
        const Case c = attention_backward_case(one.dims, p, bf16, documents);
        gives_again(agrees_with_its_twin(c, 0), c);
      }
  }
}

// However small the scores are, those of earlier documents are smaller: where all are equal, a row is the mean of what
// it sees.
TEST_F(DeviceWidths, AttentionOfDocumentsWithScoresFarBelowZero) {
  const AttentionDims dims{1, 200, 1, 64};
  for (int64_t offset : {0, 1})  // tiles, and the plain kernels
    for (const cuda::Chip& chip : {ampere, own_chip}) {
      Case c = attention_forward_case(dims, 0, bf16, {130, 70});
      Values &qkv = c.args[2].values, &starts = c.args[3].values;
      for (int64_t t = 0; t < dims.T; t++)
        for (int64_t i = 0; i < 2 * dims.D; i++) qkv[at(t * 3 * dims.D + i)] = i < dims.D ? 512 : -512;
      const Memories got = on_device(c, offset, chip);
      for (int64_t t = 0; t < dims.T; t++) {
        const int64_t begin = int64_t(starts[at(t)]);
        double sum = 0;
        for (int64_t j = begin; j <= t; j++) sum += qkv[at((j * 3 + 2) * dims.D)];
        EXPECT_NEAR(got.memory[0].get(t * dims.D), sum / double(t - begin + 1), 0.02) << "row " << t;
      }
    }
}

// One document that fills the sequences is none.
TEST_F(DeviceBits, DocumentsThatBeginWithTheirSequencesChangeNone) {
  const auto same = [](const Case& without, const Case& with, int64_t offset, const cuda::Chip& chip) {
    SCOPED_TRACE(with.name());
    const Memories a = on_device(without, offset, chip), b = on_device(with, offset, chip);
    for (size_t i = 0; i < without.args.size(); i++)
      EXPECT_TRUE(a.memory[i].bits() == b.memory[i].bits()) << without.args[i].name;
  };
  const Documents whole{1000};
  for (int64_t offset : {0, 1})  // tiles, and the plain kernels
    for (const cuda::Chip& chip : {ampere, own_chip})
      for (double p : {0.0, 0.2}) {
        const AttentionDims dims{1, 150, 1, 64};
        same(attention_forward_case(dims, p, bf16), attention_forward_case(dims, p, bf16, whole), offset, chip);
        same(attention_backward_case(dims, p, bf16), attention_backward_case(dims, p, bf16, whole), offset, chip);
      }
  for (DType t : {f32, bf16}) {
    const VocabularyPart part{0, 11, 11};
    same(embedding_forward_case(3, 33, 48, part, 1, t), embedding_forward_case(3, 33, 48, part, 1, t, whole), 0,
         own_chip);
    same(embedding_backward_case(3, 33, 48, part, 1, t), embedding_backward_case(3, 33, 48, part, 1, t, whole), 0,
         own_chip);
  }
}

// Fewer elements than one block takes at once, as many, and several parts more.
TEST_F(DeviceBits, ConversionsInPlaceAreThoseOfTheCpu) {
  for (DType t : {DType::bf16, DType::f16})
    for (int64_t n : {1, 7, 4096, 4097, 8192, 20011})
      for (int64_t offset : {0, 1}) {
        Case c = copy_case(n, t, DType::f32);
        c.args = {out("narrow", DType::f32, {n}), out("wide", DType::f32, {n})};
        c.run = [t](Stream& s, const Tensors& a) {
          for (const Tensor& x : a) {
            const Tensor front(x.raw(), t, {x.numel()});
            launch(s, Copy{.y = front, .x = x});
            if (&x == &a.back()) launch(s, Copy{.y = x, .x = front});
          }
        };
        Memories host(c, offset);
        Stream s(World::cpu);
        c.run(s, host.tensors());
        EXPECT_TRUE(bits_of(on_device(c, offset)) == bits_of(host)) << n;
      }
}

TEST_F(DeviceBits, MasksAreThoseOfTheCpu) {
  for (const Case& c : {dropout_case(5, 200, 0.3, DType::f32), dropout_case(5, 203, 0.3, DType::bf16),
                        residual_layernorm_forward_case(5, 200, 0.5, DType::f32),
                        residual_layernorm_forward_case(5, 200, 0.5, DType::bf16),
                        residual_layernorm_forward_case(5, 203, 0.5, DType::bf16)}) {
    SCOPED_TRACE(c.name());
    const Memories host(c, 0);
    Stream s(World::cpu);
    c.run(s, host.tensors());
    EXPECT_TRUE(on_device(c, 0).memory[0].bits() == host.memory[0].bits());
  }
}

TEST_F(DeviceBits, MasksDrawnFromMemoryAreThoseOfTheNumbers) {
  for (const Case& c : dropout_cases())
    for (const cuda::Chip& chip : {ampere, own_chip}) {
      SCOPED_TRACE(c.name());
      if (chip.generation > 0 && !c.op.starts_with("attention")) continue;
      Bits bits = bits_of(on_device(drawn_from_memory(c), 0, chip));
      bits.pop_back();
      EXPECT_TRUE(bits == bits_of(on_device(c, 0, chip)));
    }
}

TEST_F(DeviceBits, OnePartOfTheVocabularyIsTheWhole) {
  constexpr int64_t N = 5, V = 5003, padding = 5;
  constexpr double scale = 0.3;
  const VocabularyPart part = whole_vocabulary(V);
  for (DType t : {DType::f32, DType::bf16})
    for (int64_t offset : {0, 1}) {
      Case whole = cross_entropy_forward_backward_case(N, V, padding, t);
      whole.run = [&](Stream& s, const Tensors& a) {
        launch(s, CrossEntropyForwardBackward{
                      .losses = a[0], .logits = a[1], .targets = a[2], .part = part, .scale = scale});
      };
      Case parts = whole;
      for (Arg arg : {out("stats", DType::f32, {3, N}), out("max", DType::f32, {N})}) {
        arg.scratch = true;
        parts.args.push_back(arg);
      }
      parts.run = [&](Stream& s, const Tensors& a) {
        const Tensor stats = a[3], max = a[4];
        launch(s, SoftmaxPart{.stats = stats, .logits = a[1], .targets = a[2], .part = part});
        launch(s, Copy{.y = max, .x = stats.rows(0, 1).view({N})});
        launch(s, MergeSoftmax{.stats = stats, .max = max});
        launch(s, CrossEntropyLoss{.losses = a[0], .stats = stats, .targets = a[2]});
        launch(s, CrossEntropyGradient{.logits = a[1], .stats = stats, .targets = a[2], .part = part, .scale = scale});
      };
      const Memories one = on_device(whole, offset), two = on_device(parts, offset);
      for (size_t a : {0, 1}) EXPECT_TRUE(one.memory[a].bits() == two.memory[a].bits()) << whole.args[a].name;
    }
}

// A device cannot throw, so that a number that is no token must be seen in the result.
TEST_F(DeviceBits, WhatIsNoTokenGivesNaN) {
  Case loss = cross_entropy_forward_case(3, 17, 2, DType::f32);
  loss.args[2].values = {4, 17, 2};
  const Memories losses = on_device(loss, 0);
  EXPECT_TRUE(std::isfinite(losses.memory[0].get(0)));
  EXPECT_TRUE(std::isnan(losses.memory[0].get(1)));
  Case rows = embedding_forward_case(1, 2, 8, {0, 11, 11}, 0, DType::bf16);
  rows.args[1].values = {3, -1};
  const Memories embedded = on_device(rows, 0);
  EXPECT_TRUE(std::isfinite(embedded.memory[0].get(7)));
  EXPECT_TRUE(std::isnan(embedded.memory[0].get(8)));
}

}  // namespace
}  // namespace megalith::test
