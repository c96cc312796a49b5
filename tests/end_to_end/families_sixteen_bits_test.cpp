// Models of other families than GPT-2 in 16 bits: near their references (../shared/reference/families), which are of
// float64, in several layouts, and the same bits where FEATURES.md says so.
#include <fmt/format.h>

#include "tests/end_to_end/families.h"
#include "tests/end_to_end/layout.h"
#include "tests/long_tests.h"

namespace megalith::e2e {
namespace {

// Trainings of one number of ranks; all that stand in one list are the same bits.
struct Alike {
  int ranks;
  std::vector<std::string> words;
};

// What is recomputed or offloaded changes no bit, nor when weights are gathered.
std::vector<Alike> alike_layouts_of(const std::string& family) {
  const std::string tensor = family == "llama2" ? "tensor=2" : "tensor=4";
  return {{4,
           {tensor + " sequence", tensor + " sequence recompute offload offload_optimizer=1",
            tensor + " sequence recompute=selective"}},
          {1, {"microbatch=2", "microbatch=2 recompute"}},
          {2, {"full_shard microbatch=1", "shard_grad_op microbatch=1 recompute=contiguous offload"}},
          {2, {"pipeline=2 microbatch=1", "pipeline=2 gpipe microbatch=1 recompute=selective"}},
          {8, {tensor + " pipeline=2 recompute=selective microbatch=1", tensor + " pipeline=2 microbatch=1"}}};
}

class FamiliesInSixteenBits : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Of, FamiliesInSixteenBits, testing::ValuesIn(all_families),
                         [](const auto& suite) { return suite.param; });

TEST_P(FamiliesInSixteenBits, StayNearTheReferenceAndAreTheSameBitsWhereNoSumChanges) {
  const Family family{GetParam()};
  SKIP_WITHOUT_FAMILY(family);
  const Scratch scratch;
  family.write_config(scratch, family.folder());
  std::vector<Alike> layouts = alike_layouts_of(family.name);
  layouts.resize(static_cast<size_t>(taken("FamiliesInSixteenBits.layouts")));
  for (const std::string type : {"fp16", "bf16"}) {
    int number = 0;
    for (const auto& [ranks, words] : layouts) {
      std::vector<Training> trainings;
      for (const std::string& w : words)
        trainings.push_back({fmt::format("{}_{}", type, number++), w, {"precision.compute=" + type}});
      train_several(scratch, ranks, trainings);
      const std::string first = scratch / trainings[0].name;
      SCOPED_TRACE(fmt::format("{} ranks: {}", ranks, trainings[0].words));
      family.expect_near(first, type);
      for (const Training& t : trainings) {
        SCOPED_TRACE(t.words);
        EXPECT_EQ(read_steps(scratch / t.name), read_steps(first));
        EXPECT_EQ(read_file(scratch / (t.name + "/export/model.safetensors")),
                  read_file(first + "/export/model.safetensors"));
      }
    }
  }
}

}  // namespace
}  // namespace megalith::e2e
