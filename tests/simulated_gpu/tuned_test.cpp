// A table of GEMM choices from its measurement to training, on the simulated GPU and the simulated cuBLASLt: the tuner
// of bench_kernels with a clock that a test sets, and steps that multiply by what it chose.
#include "bench/tune.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/linear/device_queue.h"
#include "tests/pure/small_run.h"
#include "tests/simt/gemm_tables.h"
#include "tests/simulated_cublaslt/control.h"

namespace megalith {
namespace {

constexpr int64_t simulated_version = 990100;

class TunedGemm : public testing::Test {
 protected:
  TunedGemm() {
    void* const library = dlopen("libcublasLt.so.99", RTLD_NOW);
    CHECK(library, "{}", dlerror());
    control_ = reinterpret_cast<decltype(&simulated_cublaslt_control)>(dlsym(library, "simulated_cublaslt_control"))();
    config_ = small_config();
    config_.model = {.layers = 2, .hidden = 32, .heads = 2, .vocab = 40, .context = 16, .dropout = 0};
    config_.batch = {.sequence_length = 16, .global_batch_size = 4, .microbatch_size = 2};
    config_.precision.compute = ComputeType::bf16;
  }
  ~TunedGemm() override { simt::gemm_tables().clear(); }

  struct Trained {
    std::vector<float> bits;
    double loss = 0;
    int64_t bias_ops = 0;
    std::vector<std::string> told;
  };
  Trained train(std::vector<GemmTable> tables) const {
    simt::gemm_tables() = std::move(tables);
    SmallRun run(config_, World::cuda);
    Trained trained;
    for (const StepScalars& step : run.steps(2)) trained.loss = step.loss;
    for (const Unit& unit : run.units()) {
      Stream& s = run.runtime.stream;
      s.download("read", unit.master(), [&](Tensor host) {
        trained.bits.insert(trained.bits.end(), host.data<float>(), host.data<float>() + host.numel());
      });
      s.synchronize();
    }
    for (const OpRecord& op : run.runtime.stream.log())
      if (std::string_view(op.name) == "linear_backward_bias") trained.bias_ops = op.launches;
    trained.told = run.runtime.stream.queue().gemm->describe(run.rehearsal.gemms);
    EXPECT_EQ(run.runtime.stream.gemms().size(), run.rehearsal.gemms.size()) << "the dry world has the same products";
    return trained;
  }

  // With kernels that take as long as their number says, or the other way round.
  GemmTable tuned(bool largest) const {
    DeviceQueue queue;
    Stream s(World::cuda, queue.queue());
    Arena arena(World::cuda, "tuning", 1 << 20);
    const auto clock = [&](const bench::Tuner::Works& works) {
      EXPECT_GT(works.size(), 1u) << "on cold memory";
      control_->last_algorithm = 0;
      for (const auto& work : works) work();
      s.synchronize();
      const double id = control_->last_algorithm;
      return id == 0 ? 0.001 : largest ? 1 / id : id;  // 0: what is no product
    };
    bench::Tuner tuner(s, arena, clock, 100'000, 8);
    GemmTable table{
        .gpu = device::properties().name, .library = simulated_version, .driver = "", .date = "a day", .choices = {}};
    for (const auto& [shape, count] : rehearse(config_, make_plan(config_, 1, 0)).gemms) {
      const bench::TunedProduct product = tuner.tune(shape);
      EXPECT_EQ(product.why, "");
      EXPECT_LE(product.tuned, product.first);
      for (const GemmChoice& choice : product.choices) {
        EXPECT_LE(choice.seconds, choice.first_seconds);
        table.choices.push_back(choice);
      }
    }
    return table;
  }

  Config config_;
  simulated_cublaslt::Control* control_;
};

TEST_F(TunedGemm, StepsMultiplyByTheTableAndTheSameBitsComeAgain) {
  const Trained untuned = train({});
  const GemmTable table = tuned(true);
  const Trained one = train({table}), two = train({table});
  EXPECT_EQ(one.bits, two.bits);
  EXPECT_NE(one.bits, untuned.bits);
  EXPECT_NEAR(one.loss, untuned.loss, untuned.loss / 256);
  ASSERT_EQ(one.told.size(), 1u) << one.told[1];
  ASSERT_EQ(untuned.told.size(), 1u);
  const size_t shapes = rehearse(config_, make_plan(config_, 1, 0)).gemms.size();
  EXPECT_EQ(one.told[0],
            fmt::format(
                "GEMM: cuBLASLt 99.1.0; {0} of {0} shapes of a step have tuned kernels, the library chooses the others",
                shapes));
  EXPECT_EQ(
      untuned.told[0],
      fmt::format("GEMM: cuBLASLt 99.1.0; 0 of {} shapes of a step have tuned kernels, the library chooses the others",
                  shapes));
  // The tuner found these sums faster within the product, where the clock has them for nothing.
  EXPECT_EQ(untuned.bias_ops, 2 * 2 * 2 * 2) << "of qkv and up, 2 layers, 2 microbatches, 2 steps";
  EXPECT_EQ(one.bias_ops, 0);
  // And the other way round it keeps them apart.
  GemmTable apart = table;
  std::erase_if(apart.choices, [](const GemmChoice& choice) { return choice.shape.bias_gradient; });
  const Trained without = train({apart});
  EXPECT_EQ(without.bias_ops, untuned.bias_ops);
  EXPECT_EQ(without.told, one.told);
}

TEST_F(TunedGemm, TablesOfAnotherVersionChangeNoBit) {
  GemmTable table = tuned(true);
  table.library = 130100;
  const Trained untuned = train({}), other = train({table});
  EXPECT_EQ(other.bits, untuned.bits);
  ASSERT_EQ(other.told.size(), 2u);
  EXPECT_NE(other.told[1].find("are for cuBLASLt 13.1.0, but this is 99.1.0: not used"), std::string::npos);
}

// Each of two clocks has its own fastest.
TEST_F(TunedGemm, TheFastestIsChosen) {
  const GemmTable slow = tuned(true), fast = tuned(false);
  for (const auto& [table, largest] : {std::pair{&slow, true}, {&fast, false}})
    for (const GemmChoice& choice : table->choices) {
      EXPECT_GT(choice.candidates, 1);
      const double id = largest ? 1 / choice.seconds : choice.seconds;
      EXPECT_EQ(choice.algorithm[1], static_cast<uint64_t>(std::llround(id))) << choice.what;
      if (largest && !choice.shape.gelu) {
        EXPECT_GE(id, 12);
      }
      if (!largest) {
        EXPECT_EQ(id, 1);
      }
    }
}

}  // namespace
}  // namespace megalith
