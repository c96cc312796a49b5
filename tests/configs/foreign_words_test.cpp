// Values of other programs are answered with ours.
#include "configs/foreign_words.h"

#include <gtest/gtest.h>

#include "configs/config.h"
#include "tests/message_of.h"

namespace megalith {
namespace {

TEST(ForeignWords, AreAnswered) {
  const auto answer = [](const std::string& typed) {
    return message_of([&] { parse_config("", "run.toml", {typed}); });
  };
  const auto expect = [&](const char* typed, const char* words) {
    EXPECT_TRUE(answer(typed).ends_with(words)) << typed << ": " << answer(typed);
  };
  expect("precision.compute=bfloat16", "expected one of bf16 fp16 fp32; write bf16");
  expect("precision.compute=BF16", "; write bf16");
  expect("precision.compute=16-mixed", "; write fp16");
  expect("precision.compute=fp8", "; write bf16, with precision.products = fp8");
  expect("precision.master=float16", "expected one of fp32 bf16");
  expect("optimizer.algorithm=adamw_torch_fused", "; write adamw");
  expect("optimizer.decay=wsd", "; write linear, with optimizer.decay_begin");
  expect("parallel.sharding_strategy=HYBRID_SHARD", "; write full_shard, with parallel.sharded_data_parallel_degree");
  expect("parallel.pipeline_schedule=ZBVZeroBubble", "; write zb_v");
  expect("communication.backend=gloo", "; write mpi");
  EXPECT_NE(answer("communication.backend=smddp").find("communication.symmetric_memory"), std::string::npos);
  for (const ForeignWord& foreign : foreign_words()) {
    const auto ours = key_values(Config{});
    const std::string here(foreign.here);
    for (size_t dot = here.find('.'); dot != std::string::npos; dot = here.find('.', dot + 1)) {
      const size_t begin = here.rfind(' ', dot) + 1, end = std::min(here.find(' ', dot), here.size());
      EXPECT_TRUE(ours.contains(here.substr(begin, end - begin))) << here;
    }
  }
}

}  // namespace
}  // namespace megalith
