// Models of other families than GPT-2, and Muon, on the GPU: near their references (../shared/reference/families,
// muon), which are of float64, in fp32 and in 16 bits; the same bits with what is recomputed or offloaded, and as
// graphs.
#include "tests/end_to_end/families.h"

#include <fmt/format.h>

#include "tests/device/device.h"
#include "tests/end_to_end/layout.h"
#include "tests/end_to_end/muon_reference.h"

namespace megalith::e2e {
namespace {

class GpuFamilies : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_FAMILY(family_);
    if (const std::string why = test::no_device(); !why.empty()) GTEST_SKIP() << why;
    family_.write_config(scratch_, family_.folder());
  }
  // Trains from the beginning into the run folder `name`, in the words of layout.h.
  void train_as(const std::string& name, const std::string& words, const Args& more) {
    Args args = overrides_of(words);
    args.insert(args.end(), {"run.device=cuda", "run.output=" + name});
    args.insert(args.end(), more.begin(), more.end());
    train(scratch_.folder(), 1, args);
  }
  std::string checkpoint_of(const std::string& name) const {
    return scratch_ / (name + "/checkpoints/" + step_name(std::ssize(family_.steps())));
  }

  const Family family_{GetParam()};
  const Scratch scratch_;
};
INSTANTIATE_TEST_SUITE_P(Of, GpuFamilies, testing::ValuesIn(all_families),
                         [](const auto& suite) { return suite.param; });

TEST_P(GpuFamilies, fp32_takes_the_course_of_the_reference) {
  train_as("run", "microbatch=2", {});
  const std::string errors = expect_same_course({read_steps(scratch_ / "run"), {}}, {family_.steps(), {}});
  const double weights = family_.furthest(checkpoint_of("run"), "parameters/", "final");
  EXPECT_LT(weights, 1e-3);
  fmt::print("  {}: {}; weights {:.1e}\n", family_.name, errors, weights);
}

TEST_P(GpuFamilies, sixteen_bits_stay_near_the_reference_with_the_same_bits_however_it_is_done) {
  for (const std::string type : {"fp16", "bf16"}) {
    SCOPED_TRACE(type);
    const Args in_type{"precision.compute=" + type};
    train_as(type, "microbatch=2", in_type);
    family_.expect_near(scratch_ / type, type);
    train_as(type + "_recomputed", "microbatch=2 recompute offload offload_optimizer=1", in_type);
    EXPECT_EQ(read_steps(scratch_ / (type + "_recomputed")), read_steps(scratch_ / type));
    expect_same_rank_files(checkpoint_of(type), checkpoint_of(type + "_recomputed"));
    train_as(type + "_graphs", "microbatch=2", {in_type[0], "run.cuda_graphs=true"});
    expect_same_rank_files(checkpoint_of(type), checkpoint_of(type + "_graphs"));
  }
}

class GpuMuon : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(References, GpuMuon, testing::Values("gpt2", "llama3"));

TEST_P(GpuMuon, takes_the_course_of_the_reference) {
  const MuonReference muon{GetParam()};
  SKIP_WITHOUT_MUON(muon);
  if (const std::string why = test::no_device(); !why.empty()) GTEST_SKIP() << why;
  const Scratch scratch;
  muon.write_config(scratch);
  Args args = overrides_of("microbatch=2");
  args.push_back("run.device=cuda");
  train(scratch.folder(), 1, args);
  const std::string errors = expect_same_course({read_steps(scratch / "run"), {}}, {muon.steps(), {}});
  const double weights = muon.furthest(MuonReference::weights_of(scratch, "run"), "final");
  EXPECT_LT(weights, 1e-3);
  fmt::print("  {}: {}; weights {:.1e}\n", muon.name, errors, weights);
}

}  // namespace
}  // namespace megalith::e2e
