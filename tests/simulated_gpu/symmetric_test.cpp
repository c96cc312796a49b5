// Symmetric memory of NCCL, on ranks that each have a simulated GPU: all that the groups of a training transfer lies in
// it, at the same offsets on all ranks, and no bit changes. The simulated library counts what does not.
#include <dlfcn.h>

#include <thread>

#include "kernels/linear/device_queue.h"
#include "tests/message_of.h"
#include "tests/mpi/session.h"
#include "tests/pure/small_run.h"
#include "tests/simulated_nccl/faults.h"
#include "trainer/job/rank_context.h"

namespace megalith {
namespace {

class SymmetricSimulatedGpuLayouts : public testing::Test {
 protected:
  void SetUp() override {
    if (session().size() == 1) GTEST_SKIP() << "runs under mpirun";
    faults_ = reinterpret_cast<decltype(&simulated_nccl_faults)>(
        dlsym(dlopen("libnccl.so.2", RTLD_NOW), "simulated_nccl_faults"))();
    reset();
  }
  void TearDown() override {
    if (faults_) reset();
    unsetenv("NCCL_CTA_POLICY");
  }
  void reset() const {
    faults_->lost_window = faults_->shifted_window = -1;
    faults_->window_errors = faults_->symmetric = faults_->outside_windows = faults_->misplaced = faults_->exchanges =
        0;
  }

  // A step and an evaluation.
  static std::vector<double> trained(Config config) {
    RankContext work(config, session());
    work.rehearse();
    work.open();
    work.trainer->initialize();
    Stream& s = work.runtime->stream;
    std::vector<double> bits;
    StepScalars scalars;
    s.receive(work.trainer->step(0, 0, feed_text(config, 0), {}, &scalars));
    bits.insert(bits.end(), {scalars.loss, scalars.grad_norm});
    bits.push_back(work.trainer->evaluate(config.batch.microbatch_size, feed_text(config, 0)));
    for (const Unit& unit : work.trainer->stage().sharding().units())
      s.download("read", unit.master(), [&](Tensor host) {
        for (int64_t i = 0; i < host.numel(); i++) bits.push_back(static_cast<double>(host.data<float>()[i]));
      });
    s.synchronize();
    return bits;
  }

  simulated_nccl::Faults* faults_ = nullptr;
};

struct Case {
  int ranks;
  void (*set)(Config&);
  bool exchanges = false;  // equal parts, which copy engines can move
};

Config config_of(const Case& c) {
  Config config = small_config();
  config.model = {.layers = 2, .hidden = 12, .heads = 4, .vocab = 31, .context = 9, .dropout = 0.1};
  config.batch = {.sequence_length = 8, .global_batch_size = 4, .microbatch_size = 4};
  config.run.device = Device::cuda;
  c.set(config);
  return resolve(config);
}

void by_pieces(Config& c) {
  c.parallel.tensor_parallel_degree = 2;
  c.parallel.sequence_parallel = true;
  c.parallel.tensor_pieces = 2;
}
void by_shards(Config& c) { c.parallel.sharding_strategy = ShardingStrategy::full_shard; }

const std::vector<Case> cases{{2, by_pieces},
                              {2, by_shards},
                              {2, [](Config& c) { c.precision.gradient_reduce = StorageType::bf16; }, true},
                              {4,
                               [](Config& c) {
                                 by_pieces(c);
                                 c.parallel.pipeline_parallel_degree = 2;
                                 c.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
                               }},
                              {4,
                               [](Config& c) {
                                 c.parallel.tensor_parallel_degree = 4;
                                 c.model.key_value_heads = 2;
                               }},
                              {4,
                               [](Config& c) {
                                 c.parallel.ranks_per_node = 2;
                                 c.precision.gradient_reduce = StorageType::bf16;
                                 c.memory.offload_optimizer = 1;
                                 c.memory.offload_parameters = true;
                               },
                               true},
                              {4, [](Config& c) { c.parallel.sharded_data_parallel_degree = 2; }},
                              {4, [](Config& c) {
                                 c.parallel.tensor_parallel_degree = 2;
                                 c.optimizer.algorithm = Algorithm::muon;
                               }}};

TEST_F(SymmetricSimulatedGpuLayouts, UseRegisteredMemoryAloneAndChangeNoBit) {
  for (size_t i = 0; i < cases.size(); i++) {
    if (cases[i].ranks != session().size()) continue;
    SCOPED_TRACE(fmt::format("case {}", i));
    Config config = config_of(cases[i]);
    const std::vector<double> without = trained(config);
    EXPECT_EQ(faults_->symmetric, 0);
    for (const SymmetricMemory kind : {SymmetricMemory::kernels, SymmetricMemory::copy_engines}) {
      if (kind == SymmetricMemory::copy_engines && !cases[i].exchanges) continue;  // nothing else is another call
      config.communication.symmetric_memory = kind;
      EXPECT_EQ(trained(config), without);
      EXPECT_GT(faults_->symmetric, 0);
      EXPECT_EQ(faults_->outside_windows, 0);
      EXPECT_EQ(faults_->misplaced, 0);
      EXPECT_EQ(faults_->window_errors, 0);
      EXPECT_EQ(faults_->exchanges > 0, kind == SymmetricMemory::copy_engines);
      reset();
    }
  }
}

// An arena that is not registered is noticed; NCCL would copy what lies there. They have these numbers in their order.
TEST_F(SymmetricSimulatedGpuLayouts, WhatIsNotRegisteredIsCounted) {
  if (session().size() != 2) GTEST_SKIP() << "2 ranks are needed";
  const auto outside = [&](void (*set)(Config&), MemoryClass lost) {
    Config config = config_of({2, set});
    config.communication.symmetric_memory = SymmetricMemory::kernels;
    reset();
    faults_->lost_window = static_cast<int>(lost);
    trained(config);
    EXPECT_EQ(faults_->window_errors, 0);
    return faults_->outside_windows.load();
  };
  for (const MemoryClass lost : {MemoryClass::saved, MemoryClass::scratch}) EXPECT_GT(outside(by_pieces, lost), 0);
  for (const MemoryClass lost : {MemoryClass::parameters, MemoryClass::gradients, MemoryClass::communication})
    EXPECT_GT(outside(by_shards, lost), 0);
}

// Two arenas, which a rank can register or use in another way than the others do.
class RegisteredOtherwise {
 public:
  RegisteredOtherwise() {
    for (const auto& arena : arenas_) {
      const Tensor all(arena.get(), DType::f32, {bytes / 4});
      s_.upload("write", {all}, [](std::span<const Tensor> h) { std::fill_n(h[0].data<float>(), bytes / 4, 3.f); });
    }
    s_.synchronize();
  }
  void use(int arena, int64_t shift, int64_t less) const {
    group_->use_symmetric(static_cast<char*>(arenas_[arena].get()) + shift, bytes - shift - less);
  }
  // Sums four values of the first arena, which begin at the offset in bytes.
  void sum(int64_t offset) {
    const Tensor part(static_cast<char*>(arenas_[0].get()) + offset, DType::f32, {4});
    group_->all_reduce(s_, part, Reduce::sum).wait();
    s_.synchronize();
  }
  std::string error() const {
    return message_of([&] {
      for (;;) {
        nccl_.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
  }
  static constexpr int64_t bytes = 8192;

 private:
  DeviceQueue queue_;
  Stream s_{World::cuda, queue_.queue()};
  const NcclSession nccl_{session(), {.symmetric_memory = SymmetricMemory::kernels}};
  const device::Memory arenas_[2] = {nccl_.allocate(bytes, "an arena"), nccl_.allocate(bytes, "an arena")};
  const std::unique_ptr<Communicator> world_ = nccl_.world(),
                                      group_ =
                                          world_->split("data", static_cast<int>(Channel::data), 0, session().rank());
};

TEST_F(SymmetricSimulatedGpuLayouts, ARankThatRegistersOtherwiseIsFound) {
  const bool odd = session().rank() == 1;
  {
    RegisteredOtherwise alike;
    alike.use(0, 0, 0);
    alike.use(1, 0, 0);
    alike.sum(16);
    EXPECT_EQ(faults_->misplaced, 0);
    EXPECT_EQ(faults_->symmetric, 1);
    alike.sum(odd ? 32 : 16);
    EXPECT_EQ(faults_->misplaced, 1) << "a tensor has another offset";
    EXPECT_NE(alike.error().find("NCCL reports: invalid usage"), std::string::npos);
  }
  {
    RegisteredOtherwise in_order;
    in_order.use(odd ? 1 : 0, 0, 0);
    in_order.use(odd ? 0 : 1, 0, 0);
    in_order.sum(16);
    EXPECT_EQ(faults_->misplaced, 2) << "another order";
  }
  {
    RegisteredOtherwise shifted;
    shifted.use(0, odd ? 4096 : 0, odd ? 0 : 4096);
    shifted.sum(odd ? 4096 + 16 : 0);
    EXPECT_EQ(faults_->misplaced, 3) << "another place";
  }
  reset();  // after an error windows are not given back
  const RegisteredOtherwise sizes;
  EXPECT_NE(message_of([&] { sizes.use(0, 0, odd ? 4096 : 0); }).find("invalid argument"), std::string::npos);
  EXPECT_EQ(faults_->window_errors, 1);
}

}  // namespace
}  // namespace megalith
