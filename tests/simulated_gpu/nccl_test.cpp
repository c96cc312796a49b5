// What can go wrong with NCCL, on the simulated one: each ends in an error that names channel and operation, and never
// in a wait without end.
#include "trainer/communication/nccl.h"

#include <dlfcn.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "kernels/linear/device_queue.h"
#include "kernels/stream/stream.h"
#include "tests/data/scratch.h"
#include "tests/message_of.h"
#include "tests/simulated_nccl/faults.h"
#include "trainer/communication/mesh.h"
#include "trainer/session/file_session.h"
#include "trainer/session/watched_session.h"

namespace megalith {
namespace {

class Nccl : public testing::Test {
 protected:
  Nccl() {
    void* library = dlopen("libnccl.so.2", RTLD_NOW);
    CHECK(library, "{}", dlerror());
    auto* const find = reinterpret_cast<decltype(&simulated_nccl_faults)>(dlsym(library, "simulated_nccl_faults"));
    CHECK(find, "another NCCL than the simulated one is in LD_LIBRARY_PATH");
    faults_ = find();
  }
  ~Nccl() override {
    faults_->fail_calls = faults_->block_calls = faults_->report_error = faults_->hold_transfers = false;
    faults_->version = 29901;
  }

  // A sum that the data channel is given after `spoil`, and a host that waits for it.
  void sum(double timeout, const std::function<void()>& spoil) {
    const WatchedSession watched(std::make_unique<FileSession>("", Launch{}, 1), timeout);
    const NcclSession nccl(watched, {.max_ctas = 7});
    const auto world = nccl.world(), data = world->split("data", static_cast<int>(Channel::data), 0, 0);
    DeviceQueue queue;
    Stream s(World::cuda, queue.queue());
    s.on_idle([&] { nccl.check(); });
    const device::Memory memory = device::allocate(8, "a tensor of the test");
    const Tensor tensor(memory.get(), DType::f32, {2});
    s.upload("write", {tensor}, [](std::span<const Tensor> host) { std::fill_n(host[0].data<float>(), 2, 3.f); });
    spoil();
    data->all_reduce(s, tensor, Reduce::sum).wait();
    float seen = 0;
    s.download("read", tensor, [&](Tensor host) { seen = host.data<float>()[1]; });
    s.synchronize();
    CHECK(seen == 3, "{}", seen);
  }
  std::string what_sum_says(double timeout, const std::function<void()>& spoil) {
    return message_of([&] { sum(timeout, spoil); });
  }

  const FileSession alone_{"", {}, 1};
  simulated_nccl::Faults* faults_;
};

TEST_F(Nccl, CarriesWhatItIsGiven) {
  sum(60, [] {});
  EXPECT_EQ(faults_->max_ctas, 7);
}

// Sums through NVLink's switches differ from call to call, and what connects later takes memory that was counted as
// free. Whoever has set NCCL's second variable knows why; the first is the config's.
TEST_F(Nccl, IsToldWhatTheRunDependsOn) {
  setenv("NCCL_NVLS_ENABLE", "1", 1);
  unsetenv("NCCL_RUNTIME_CONNECT");
  NcclSession(alone_, {}).world();
  EXPECT_EQ(faults_->nvls_enable, 0);
  EXPECT_EQ(faults_->runtime_connect, 0);
  setenv("NCCL_RUNTIME_CONNECT", "1", 1);
  NcclSession(alone_, {}).world();
  EXPECT_EQ(faults_->runtime_connect, 1);
  unsetenv("NCCL_RUNTIME_CONNECT");
  for (const char* chosen : {"", "2"}) {
    unsetenv("NCCL_NVLS_ENABLE");
    if (*chosen) setenv("NCCL_NVLS_ENABLE", chosen, 1);
    NcclSession(alone_, {.nvls = true}).world();
    EXPECT_EQ(faults_->nvls_enable, *chosen ? std::atoi(chosen) : -1);
  }
}

// And NCCL_CTA_POLICY_ZERO asks for copy engines.
TEST_F(Nccl, IsAskedForCopyEngines) {
  for (const SymmetricMemory wanted : {SymmetricMemory::kernels, SymmetricMemory::copy_engines}) {
    unsetenv("NCCL_CTA_POLICY");
    NcclSession(alone_, {.symmetric_memory = wanted}).world();
    EXPECT_EQ(faults_->cta_policy, wanted == SymmetricMemory::kernels ? -1 : 2);
  }
  unsetenv("NCCL_CTA_POLICY");
}

TEST_F(Nccl, IsTooOldForSymmetricMemory) {
  const auto said = [&](int version, SymmetricMemory wanted) {
    faults_->version = version;
    return message_of([&] { NcclSession(alone_, {.symmetric_memory = wanted}); });
  };
  EXPECT_EQ(said(22603, SymmetricMemory::kernels),
            "communication.symmetric_memory = kernels needs NCCL 2.27.0 or later, but libnccl.so.2 is 2.26.3; install "
            "a newer one, add its folder to LD_LIBRARY_PATH, or set communication.symmetric_memory = off");
  EXPECT_EQ(said(22707, SymmetricMemory::copy_engines),
            "communication.symmetric_memory = copy_engines needs NCCL 2.28.0 or later, but libnccl.so.2 is 2.27.7; "
            "install a newer one, add its folder to LD_LIBRARY_PATH, or set communication.symmetric_memory = off");
  using enum SymmetricMemory;
  for (const auto& [version, wanted] : {std::pair{22800, copy_engines}, {22700, kernels}, {21803, off}}) {
    faults_->version = version;
    EXPECT_NO_THROW(NcclSession(alone_, {.symmetric_memory = wanted})) << version;
  }
}

// And those of all ranks, which share a few numbers, take little memory.
TEST_F(Nccl, MessagesOfAPipelineThatWaitLeaveTheGpuToOthers) {
  const auto blocks = [&](Channel channel, int max_ctas) {
    const NcclSession nccl(alone_, {.max_ctas = max_ctas});
    const auto world = nccl.world(), part = world->split(name_of(channel), static_cast<int>(channel), 0, 0);
    return faults_->max_ctas.load();
  };
  for (Channel channel : {Channel::forward, Channel::backward_return, Channel::world}) {
    EXPECT_EQ(blocks(channel, 0), 4) << name_of(channel);
    EXPECT_EQ(blocks(channel, 2), 2) << name_of(channel);
    EXPECT_EQ(blocks(channel, 8), 8) << name_of(channel);
  }
  NcclSession(alone_, {}).world();
  EXPECT_EQ(faults_->max_ctas, 4);
  const ncclConfig_t untouched = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(blocks(Channel::shard, 0), untouched.maxCTAs);
  EXPECT_EQ(blocks(Channel::shard, 8), 8);
}

TEST_F(Nccl, ConnectsForAnExchangeBeforeTheFirst) {
  const NcclSession nccl(alone_, {});
  const auto world = nccl.world(), shard = world->split("shard", static_cast<int>(Channel::shard), 0, 0);
  faults_->connected = 0;
  shard->connect_all_to_all();
  EXPECT_EQ(faults_->connected, 1) << "itself";
  DeviceQueue queue;
  Stream s(World::cuda, queue.queue());
  const device::Memory memory = device::allocate(16, "a tensor of the test");
  const Tensor tensor(memory.get(), DType::f32, {4});
  s.upload("write", {tensor}, [](std::span<const Tensor> host) { std::fill_n(host[0].data<float>(), 4, 3.f); });
  shard->all_to_all(s, tensor.flat(0, 2), tensor.flat(2, 4)).wait();
  s.synchronize();
  EXPECT_EQ(faults_->connected, 1);
}

// What holds up a transfer holds up those behind it, and no work on the stream before they are waited for. Behind a
// gather between nodes comes one inside each: NCCL's, or of one rank, with its result in place or to be copied.
TEST_F(Nccl, WorkGoesOnUnderAGatherOfTwoLevels) {
  const NcclSession nccl(alone_, {});
  const auto world = nccl.world(), outer = world->split("outer", static_cast<int>(Channel::between_nodes), 0, 0);
  const auto of_nccl = world->split("inner", static_cast<int>(Channel::in_node), 0, 0);
  const auto of_one = self_communicator("inner");
  DeviceQueue queue;
  Stream s(World::cuda, queue.queue());
  s.on_idle([&] { nccl.check(); });
  const device::Memory memory = device::allocate(64, "tensors of the test");
  const Tensor all(memory.get(), DType::f32, {16});
  const Tensor shard = all.flat(0, 4), between = all.flat(4, 8), whole = all.flat(8, 12), other = all.flat(12, 16);
  const auto write = [&](const Tensor& t, float v) {
    s.upload("write", {t}, [v](std::span<const Tensor> host) { std::fill_n(host[0].data<float>(), 4, v); });
  };
  const auto read = [&](const Tensor& t) {
    float seen = 0;
    s.receive(s.download("read", t, [&](Tensor host) { seen = host.data<float>()[3]; }));
    return seen;
  };
  for (Communicator* inner : {of_nccl.get(), of_one.get()})
    for (const Tensor& result : {between, whole}) {
      SCOPED_TRACE(fmt::format("{} of {}", inner == of_one.get() ? "one" : "NCCL",
                               result.raw() == between.raw() ? "what is in place" : "what is copied"));
      write(all.flat(0, 4), 5);
      for (const Tensor& t : {between, whole, other}) write(t, 0);
      s.synchronize();
      faults_->hold_transfers = true;
      faults_->enqueued = 0;
      Pending gather = inner->all_gather(s, result, between, outer->all_gather(s, between, shard, Pending()));
      EXPECT_GE(faults_->enqueued, 1) << "nothing came before it, and it has not begun";
      write(other, 7);
      EXPECT_EQ(read(other), 7);
      faults_->hold_transfers = false;
      gather.wait();
      EXPECT_EQ(read(result), 5);
    }
}

// Memory is registered once, while nothing is under way, and given back before it is freed.
TEST_F(Nccl, RegistersMemoryOfItsOwnOnce) {
  faults_->window_errors = faults_->symmetric = faults_->outside_windows = 0;
  DeviceQueue queue;
  Stream s(World::cuda, queue.queue());
  {
    const NcclSession nccl(alone_, {.symmetric_memory = SymmetricMemory::kernels});
    const device::Memory memory = nccl.allocate(4096, "an arena of the test"), other = device::allocate(4096, "other");
    const auto world = nccl.world(), shard = world->split("shard", static_cast<int>(Channel::shard), 0, 0);
    shard->use_symmetric(memory.get(), 4096);
    const Tensor tensor(memory.get(), DType::f32, {2}), outside(other.get(), DType::f32, {2});
    for (const Tensor& t : {tensor, outside}) {
      s.upload("write", {t}, [](std::span<const Tensor> host) { std::fill_n(host[0].data<float>(), 2, 3.f); });
      shard->all_reduce(s, t, Reduce::sum).wait();
      EXPECT_EQ(faults_->symmetric, 1);
    }
    EXPECT_EQ(faults_->outside_windows, 1);
    s.synchronize();
    EXPECT_EQ(faults_->window_errors, 0);
    const std::string said =
        "shard: NCCL's ncclCommWindowRegister failed: invalid usage: by order of the test; "
        "NCCL_DEBUG=WARN shows more";
    EXPECT_EQ(message_of([&] { shard->use_symmetric(memory.get(), 4096); }), said);
    EXPECT_EQ(message_of([&] { shard->use_symmetric(other.get(), 4096); }), said);
    EXPECT_EQ(faults_->window_errors, 2);
    world->split("data", static_cast<int>(Channel::data), 0, 0)->use_symmetric(memory.get(), 4096);
  }
  EXPECT_EQ(faults_->window_errors, 2) << "windows are given back before their memory and their communicator";
}

TEST_F(Nccl, AMissingLibraryIsAnErrorWithTheWayOut) {
  const std::string message = message_of([&] { NcclSession(alone_, {.library = "libnccl_that_is_not_there.so.2"}); });
  for (const char* words : {"cannot be opened", "libnccl_that_is_not_there.so.2", "LD_LIBRARY_PATH", "backend=mpi"})
    EXPECT_NE(message.find(words), std::string::npos) << message;
}

TEST_F(Nccl, ALibraryThatLacksAFunctionIsTooOld) {
  EXPECT_EQ(message_of([&] { NcclSession(alone_, {.library = "libm.so.6"}); }),
            "libm.so.6 has no ncclGetVersion, which NCCL has since 2.18; install a newer one, or use "
            "communication.backend=mpi (slow)");
}

TEST_F(Nccl, TellsItsVersion) { EXPECT_EQ(NcclSession(alone_, {}).version(), "2.99.1"); }

TEST_F(Nccl, ACallThatFailsNamesChannelAndOperation) {
  EXPECT_EQ(what_sum_says(60, [&] { faults_->fail_calls = true; }),
            "data: NCCL's all_reduce failed: internal error: by order of the test; NCCL_DEBUG=WARN shows more");
  EXPECT_EQ(message_of([&] { NcclSession(alone_, {}).world(); }),
            "world: NCCL's ncclGetUniqueId failed: internal error: by order of the test; NCCL_DEBUG=WARN shows more");
}

TEST_F(Nccl, AnAsynchronousErrorIsMetWhileTheHostWaits) {
  const std::string said = what_sum_says(60, [&] { faults_->hold_transfers = faults_->report_error = true; });
  EXPECT_NE(said.find("NCCL reports: remote error: by order of the test; has another rank or a link died?"),
            std::string::npos)
      << said;
}

// Whoever watches the session ends the job: the GPU holds a transfer, or NCCL the host.
TEST_F(Nccl, ATransferThatDoesNotEndIsNamed) {
  testing::GTEST_FLAG(death_test_style) = "fast";
  EXPECT_EXIT(what_sum_says(0.5, [&] { faults_->hold_transfers = true; }), testing::ExitedWithCode(1),
              "megalith: rank 0 .* is in all_reduce 1 of data .8 bytes, step 0., like all of the group");
  EXPECT_EXIT(what_sum_says(0.5, [&] { faults_->block_calls = true; }), testing::ExitedWithCode(1),
              "megalith: rank 0 .* is in all_reduce 1 of data .8 bytes, step 0., like all of the group");
}

// Before anything is launched there is nothing to wait for, and afterwards neither: only what is under way counts.
TEST_F(Nccl, IdlenessIsNoTimeOut) {
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(900)); };
  sum(0.5, pause);
  const WatchedSession watched(std::make_unique<FileSession>("", Launch{}, 1), 0.5);
  const NcclSession nccl(watched, {});
  const auto world = nccl.world();
  pause();
  nccl.check();
}

// The host does not look: the watcher ends the process by itself.
TEST_F(Nccl, AHostThatCannotLookIsEndedByTheWatcher) {
  testing::GTEST_FLAG(death_test_style) = "fast";
  EXPECT_EXIT(
      {
        const NcclSession nccl(alone_, {});
        const auto world = nccl.world();
        faults_->report_error = true;
        for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
      },
      testing::ExitedWithCode(1), "megalith: rank 0: world: between transfers: NCCL reports: remote error");
}

TEST_F(Nccl, ARankThatHasGivenUpEndsTheOthers) {
  const test::Scratch scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    const FileSession session(scratch.path("meeting"), {1, 2, "", "job"}, 60);
    session.all_gather_text("here");
    session.abort(7);
  }
  const FileSession session(scratch.path("meeting"), {0, 2, "", "job"}, 60);
  const NcclSession nccl(session, {});
  session.all_gather_text("here");
  const std::string said = message_of([&] {
    for (;;) {
      nccl.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  EXPECT_EQ(said, "rank 1 of 2 has ended with an error; its own output has the reason");
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace megalith
