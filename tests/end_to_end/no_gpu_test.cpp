// A build with CUDA says what is missing on machines that cannot run it. Machines that can are elsewhere (tests/gpu).
#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

class NoGpu : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_REFERENCE();
    write_reference_config(scratch / "config.toml", reference("tiny"), "");
    if (ask("cuda").err.find("this build has no CUDA") != std::string::npos) GTEST_SKIP() << "this build has no CUDA";
  }
  Result ask(const std::string& device, const std::string& prefix = ":") const {
    return run(megalith({"train", "config.toml", "train.steps=1", "run.device=" + device}), scratch.folder(), 60,
               prefix);
  }

  const Scratch scratch;
};

TEST_F(NoGpu, is_said) {
  const Result r = ask("cuda", "export CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(r.status, 1) << r.text();
  EXPECT_NE(
      r.err.find("run.device = cuda: this machine has no NVIDIA GPU, or no driver, or CUDA_VISIBLE_DEVICES hides"),
      std::string::npos)
      << r.text();
  const Result instead = ask("auto", "export CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(instead.status, 0) << instead.text();
  EXPECT_NE(instead.out.find("on the CPU: this machine has no NVIDIA GPU"), std::string::npos) << instead.text();
}

TEST_F(NoGpu, a_driver_that_is_too_old_is_named) {
  const std::string old = "export LD_LIBRARY_PATH=" MEGALITH_PRETENDED_DRIVER;
  const Result r = ask("cuda", old);
  EXPECT_EQ(r.status, 1) << r.text();
  EXPECT_NE(r.err.find("the NVIDIA driver of this machine is too old: it supports CUDA 11.4, this build needs CUDA "),
            std::string::npos)
      << r.text();
  EXPECT_EQ(ask("cpu", old).status, 0) << "the CPU does";
}

// What the machine has to be helped with is said, whatever the program was about to do.
TEST_F(NoGpu, a_driver_that_is_not_in_order_comes_with_the_way_out) {
  for (const auto& [number, name, remedy] :
       {std::tuple(802, "cudaErrorSystemNotReady", "start nvidia-fabricmanager"),
        {803, "cudaErrorSystemDriverMismatch", "restart the machine after an update of the driver"},
        {804, "cudaErrorCompatNotSupportedOnDevice", "remove CUDA's compat folder from LD_LIBRARY_PATH"}}) {
    const Result r =
        ask("cuda",
            fmt::format("export LD_LIBRARY_PATH=" MEGALITH_PRETENDED_DRIVER " MEGALITH_PRETENDED_ERROR={}", number));
    EXPECT_EQ(r.status, 1) << r.text();
    for (const char* words : {"cudaGetDeviceCount failed: ", name, remedy})
      EXPECT_NE(r.err.find(words), std::string::npos) << r.text();
  }
}

}  // namespace
}  // namespace megalith::e2e
