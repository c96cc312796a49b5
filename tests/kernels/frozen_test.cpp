// Gradients of parameters that are frozen are not asked for: the tensors are empty, and what is computed besides is the
// same to the bit.
#include <gtest/gtest.h>

#include <deque>

#include "cases.h"
#include "kernels/embedding/embedding.h"
#include "kernels/norm/head_norm.h"

namespace megalith::test {
namespace {

// Tensors of an op by their place among its arguments, filled alike each time they are made.
class Floats {
 public:
  Tensor of(const Arg& arg) {
    memories_.emplace_back(arg.values.begin(), arg.values.end());
    return {memories_.back().data(), f32, arg.shape};
  }
  Tensor whole(const std::string& name, Shape shape) { return of(in(name, f32, shape)); }
  std::vector<float> values(size_t i) const { return memories_.at(i); }

 private:
  std::deque<std::vector<float>> memories_;
};

constexpr int64_t frozen_rows = 40, frozen_width = 24;

TEST(Frozen, NormsGiveTheOtherGradients) {
  Stream s(World::cpu);
  for (const bool residual : {false, true}) {
    std::vector<std::vector<float>> found[2];
    for (const bool frozen : {false, true}) {
      Floats t;
      const Tensor dx = t.whole("dx", {frozen_rows, frozen_width}), db = t.whole("db", {frozen_width}),
                   dh = t.whole("dh", {frozen_rows, frozen_width}), dw = t.whole("dw", {frozen_width});
      const Tensor dy = t.whole("dy", {frozen_rows, frozen_width}), x = t.whole("x", {frozen_rows, frozen_width}),
                   stat = t.whole("stat", {frozen_rows, 2}), w = t.whole("w", {frozen_width});
      if (residual)
        launch(s, ResidualLayerNormBackward{.dx = dx,
                                            .dh = dh,
                                            .dw = frozen ? Tensor{} : dw,
                                            .db = db,
                                            .dln = dy,
                                            .y = x,
                                            .stat = stat,
                                            .w = w,
                                            .dropout = {.p = 0.3}});
      else
        launch(s, LayerNormBackward{
                      .dx = dx, .dw = frozen ? Tensor{} : dw, .db = db, .dy = dy, .x = x, .stat = stat, .w = w});
      for (size_t i = 0; i < 3; i++) found[frozen].push_back(t.values(i));
    }
    EXPECT_EQ(found[0], found[1]);
  }
}

TEST(Frozen, HeadNormsGiveTheOtherGradients) {
  Stream s(World::cpu);
  const AttentionDims dims{.B = 2, .T = 20, .H = 3, .D = 4, .first_head = 0, .key_value_heads = 1};
  std::vector<float> d_of[3], dk_of[3];
  for (const int frozen : {0, 1, 2}) {
    Floats t;
    const Tensor d = t.whole("d", {frozen_rows, dims.qkv_width()}), dk = t.whole("dk", {4}), dq = t.whole("dq", {4});
    const Tensor x = t.whole("x", {frozen_rows, dims.qkv_width()}), rstd = t.whole("rstd", {frozen_rows, 4}),
                 q = t.whole("q", {4}), k = t.whole("k", {4});
    launch(s, HeadNormBackward{.d = d,
                               .dq_w = frozen > 0 ? Tensor{} : dq,
                               .dk_w = frozen > 1 ? Tensor{} : dk,
                               .x = x,
                               .rstd = rstd,
                               .q_w = q,
                               .k_w = k,
                               .dims = dims});
    d_of[frozen] = t.values(0);
    dk_of[frozen] = t.values(1);
  }
  EXPECT_EQ(d_of[0], d_of[1]);
  EXPECT_EQ(d_of[0], d_of[2]);
  EXPECT_EQ(dk_of[0], dk_of[1]);
  EXPECT_NE(dk_of[0], dk_of[2]) << "nothing is added where nothing is asked for";
}

TEST(Frozen, EmbeddingsGiveTheGradientOfTheOtherTable) {
  Stream s(World::cpu);
  std::vector<float> tokens_of[3], positions_of[3];
  Arg ids = integers("tokens", {frozen_rows}, 0, 11);
  std::vector<int32_t> tokens(ids.values.begin(), ids.values.end());
  for (const int frozen : {0, 1, 2}) {  // none, tokens, positions
    Floats t;
    const Tensor dwte = t.whole("dwte", {11, frozen_width}), dwpe = t.whole("dwpe", {10, frozen_width}),
                 dy = t.whole("dy", {frozen_rows, frozen_width});
    launch(s, EmbeddingBackward{.dwte = frozen == 1 ? Tensor{} : dwte,
                                .dwpe = frozen == 2 ? Tensor{} : dwpe,
                                .dy = dy,
                                .tokens = Tensor(tokens.data(), DType::i32, {frozen_rows}),
                                .T = 10,
                                .part = {0, 11, 11}});
    tokens_of[frozen] = t.values(0);
    positions_of[frozen] = t.values(1);
  }
  EXPECT_EQ(tokens_of[0], tokens_of[2]);
  EXPECT_EQ(positions_of[0], positions_of[1]);
  EXPECT_NE(tokens_of[0], tokens_of[1]);
  EXPECT_NE(positions_of[0], positions_of[2]);
}

}  // namespace
}  // namespace megalith::test
