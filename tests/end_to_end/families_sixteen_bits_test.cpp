// Models of other families than GPT-2 in 16 bits: near their references (../shared/reference/families), which are of
// float64, in several layouts, and the same bits where FEATURES.md says so.
#include <fmt/format.h>

#include <cmath>

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
  const std::vector<Step> expected = family.steps();
  std::vector<Alike> layouts = alike_layouts_of(family.name);
  layouts.resize(static_cast<size_t>(taken("FamiliesInSixteenBits.layouts")));
  for (const auto& [type, bounds] : bounds_in_sixteen_bits) {
    Bounds worst{0, 0, 0};
    int number = 0;
    for (const auto& [ranks, words] : layouts) {
      std::vector<Training> trainings;
      for (const std::string& w : words)
        trainings.push_back({fmt::format("{}_{}", type, number++), w, {"precision.compute=" + type}});
      train_several(scratch, ranks, trainings);
      const std::vector<Step> steps = read_steps(scratch / trainings[0].name);
      ASSERT_EQ(steps.size(), expected.size());
      for (size_t s = 0; s < steps.size(); s++) {
        worst.loss = std::max(worst.loss, std::abs(steps[s].loss / expected[s].loss - 1));
        worst.norm = std::max(worst.norm, std::abs(steps[s].grad_norm / expected[s].grad_norm - 1));
      }
      const auto checkpoint = [&](const Training& t) {
        return scratch / (t.name + "/checkpoints/" + step_name(std::ssize(expected)));
      };
      worst.weights = std::max(worst.weights, family.furthest(checkpoint(trainings[0]), "parameters/", "final"));
      for (const Training& t : trainings) {
        SCOPED_TRACE(t.words);
        EXPECT_EQ(read_steps(scratch / t.name), steps);
        EXPECT_EQ(read_file(scratch / (t.name + "/export/model.safetensors")),
                  read_file(scratch / (trainings[0].name + "/export/model.safetensors")));
      }
    }
    EXPECT_LT(worst.loss, bounds.loss);
    EXPECT_LT(worst.norm, bounds.norm);
    EXPECT_LT(worst.weights, bounds.weights);
    EXPECT_GT(worst.loss, 1e-6) << "nothing was rounded";
    fmt::print("  {} in {}: losses within {:.1e}, norms {:.1e}, weights {:.1e}\n", family.name, type, worst.loss,
               worst.norm, worst.weights);
  }
}

}  // namespace
}  // namespace megalith::e2e
