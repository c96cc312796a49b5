// A rank reads back what it holds of a tensor: more elements than are read at once, as every real table of tokens has.
#include "trainer/checkpointing/held_shards.h"

#include <gtest/gtest.h>

namespace megalith {
namespace {

// Each element is its place in the tensor.
struct Places : TensorSource {
  std::vector<int64_t> shape(const std::string&) const override { return {3000, 2000}; }
  void read(const TensorShard& wanted, float* out) override {
    check_shard(wanted);
    for (int64_t i = wanted.elements.begin; i < wanted.elements.end; i++) *out++ = static_cast<float>(i);
  }
};

TEST(HeldShards, EachPartOfALargeShardIsReadToItsPlace) {
  Stream s(World::cpu);
  Places source;
  const TensorShard shard = flat_shard("parameters/wte.weight", {3000, 2000}, {700, (4 << 20) + 1500});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Arena arena(World::cpu, "held", shard.numel() * 4 + 256);
    const Tensor data = arena.tensor(dtype, {shard.numel()});
    read_shards(s, {{shard, data}}, source, "the source");
    int64_t wrong = 0;
    for (int64_t i = 0; i < shard.numel(); i++) {
      const auto want = static_cast<float>(shard.elements.begin + i);
      wrong +=
          dtype == DType::f32 ? data.data<float>()[i] != want : data.data<bfloat16>()[i].bits != bfloat16(want).bits;
    }
    EXPECT_EQ(wrong, 0) << "in " << size_of(dtype) << " bytes each";
  }
}

}  // namespace
}  // namespace megalith
