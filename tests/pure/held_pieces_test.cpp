// What a rank holds of a tensor, read back: of more elements than are read at once, as every real table of tokens has.
#include "trainer/checkpointing/held_pieces.h"

#include <gtest/gtest.h>

namespace megalith {
namespace {

// Each element is its place in the tensor.
struct Places : TensorSource {
  std::vector<int64_t> shape(const std::string&) const override { return {3000, 2000}; }
  void read(const Piece& wanted, float* out) override {
    check_piece(wanted);
    for (int64_t i = wanted.begin; i < wanted.end; i++) *out++ = static_cast<float>(i);
  }
};

TEST(HeldPieces, EachPartOfALargePieceIsReadToItsPlace) {
  Stream s(World::cpu);
  Places source;
  const Piece piece = flat_piece("parameters/wte.weight", {3000, 2000}, 700, (4 << 20) + 1500);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Arena arena(World::cpu, "held", piece.numel() * 4 + 256);
    const Tensor data = arena.tensor(dtype, {piece.numel()});
    read_piece(s, {piece, data}, source);
    int64_t wrong = 0;
    for (int64_t i = 0; i < piece.numel(); i++) {
      const auto want = static_cast<float>(piece.begin + i);
      wrong +=
          dtype == DType::f32 ? data.data<float>()[i] != want : data.data<bfloat16>()[i].bits != bfloat16(want).bits;
    }
    EXPECT_EQ(wrong, 0) << "in " << size_of(dtype) << " bytes each";
  }
}

}  // namespace
}  // namespace megalith
