// One op in place of two leaves the bits that the two leave, so that a model may take either.
#include <gtest/gtest.h>

#include "cases.h"
#include "kernels/activation/gelu.h"
#include "kernels/elementwise/residual.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/layernorm.h"

namespace megalith::test {
namespace {

using Run = std::function<void(Stream&, const Tensors&)>;
std::vector<std::vector<unsigned char>> bits_after(const Case& c, const Run& run) {
  const Memories memories(c, 0);
  Stream s(World::cpu);
  run(s, memories.tensors());
  std::vector<std::vector<unsigned char>> bits;
  for (const Memory& m : memories.memory) bits.push_back(m.bits());
  return bits;
}

constexpr int64_t some_rows = 150, some_columns = 300;

TEST(Fused, ResidualLayerNormForward) {
  for (DType t : {DType::f32, DType::bf16})
    for (double p : {0.0, 0.1}) {
      const Case c = residual_layernorm_forward_case(some_rows, some_columns, p, t);
      SCOPED_TRACE(c.name());
      EXPECT_EQ(bits_after(c, c.run), bits_after(c, [p](Stream& s, const Tensors& a) {
                  launch(s, ResidualForward{.y = a[0], .x = a[3], .h = a[4], .b = a[5], .dropout = mask_of(p)});
                  launch(s, LayerNormForward{.y = a[1], .stat = a[2], .x = a[0], .w = a[6], .b = a[7]});
                }));
    }
}

// In f32 only: in bf16 the two round dx in between.
TEST(Fused, ResidualLayerNormBackward) {
  for (double p : {0.0, 0.1}) {
    const Case c = residual_layernorm_backward_case(some_rows, some_columns, p, DType::f32);
    SCOPED_TRACE(c.name());
    EXPECT_EQ(bits_after(c, c.run), bits_after(c, [p](Stream& s, const Tensors& a) {
                launch(s, LayerNormBackward{
                              .dx = a[0], .dw = a[3], .db = a[4], .dy = a[5], .x = a[6], .stat = a[7], .w = a[8]});
                launch(s, ResidualBackward{.dh = a[1], .db = a[2], .dy = a[0], .dropout = mask_of(p)});
              }));
  }
}

TEST(Fused, WithoutDropoutTheGradientMayBeTheBranchs) {
  for (DType t : {DType::f32, DType::bf16}) {
    const Case c = residual_layernorm_backward_case(some_rows, some_columns, 0, t);
    Case in_place = c;
    in_place.run = [](Stream& s, const Tensors& a) {
      launch(s, ResidualLayerNormBackward{.dx = a[0],
                                          .dh = a[0],
                                          .dh_b = a[2],
                                          .dw = a[3],
                                          .db = a[4],
                                          .dln = a[5],
                                          .y = a[6],
                                          .stat = a[7],
                                          .w = a[8]});
    };
    const auto apart = bits_after(c, c.run), together = bits_after(in_place, in_place.run);
    EXPECT_EQ(apart[0], apart[1]);
    for (size_t i : {0, 2, 3, 4}) EXPECT_EQ(apart[i], together[i]) << c.args[i].name;
  }
  const Case c = residual_layernorm_backward_case(2, 3, 0.5, DType::f32);
  const Memories memories(c, 0);
  const Tensors a = memories.tensors();
  Stream s(World::cpu);
  EXPECT_THROW(launch(s, ResidualLayerNormBackward{.dx = a[0],
                                                   .dh = a[0],
                                                   .dh_b = a[2],
                                                   .dw = a[3],
                                                   .db = a[4],
                                                   .dln = a[5],
                                                   .y = a[6],
                                                   .stat = a[7],
                                                   .w = a[8],
                                                   .dropout = mask_of(0.5)}),
               Error);
}

TEST(Fused, Gelu) {
  for (DType t : {DType::f32, DType::bf16}) {
    const Case forward = linear_gelu_forward_case(33, 48, 144, t);
    EXPECT_EQ(bits_after(forward, forward.run), bits_after(forward, [](Stream& s, const Tensors& a) {
                launch(s, LinearForward{.y = a[1], .x = a[2], .w = a[3], .b = a[4]});
                launch(s, GeluForward{.y = a[0], .x = a[1]});
              }));
    const Case backward = linear_backward_input_gelu_case(33, 48, 144, t);
    EXPECT_EQ(bits_after(backward, backward.run), bits_after(backward, [](Stream& s, const Tensors& a) {
                launch(s, LinearBackwardInput{.dx = a[0], .dy = a[1], .w = a[2]});
                launch(s, GeluBackward{.dx = a[0], .dy = a[0], .x = a[3]});
              }));
  }
}

}  // namespace
}  // namespace megalith::test
