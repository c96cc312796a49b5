// Pages of calls in this machine's shared memory, of ranks that are this process or its children.
#include "trainer/session/call_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/long_tests.h"
#include "trainer/session/machine.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

// A number that no job has.
uint64_t test_job() {
  static uint64_t count = 0;
  return (static_cast<uint64_t>(::getpid()) << 32) + ++count;
}

// Two ranks, both of them this process.
class TwoPages : public testing::Test {
 protected:
  TwoPages() {
    zero.open_others();
    one.open_others();
  }
  RankState state_of_one() const {
    const std::vector<KnownRank> others = zero.look_at_processes();
    return others.size() == 1 ? others.front().state : RankState::unseen;
  }

  const uint64_t job = test_job();
  const std::vector<std::string> here{machine_id(), machine_id()};
  CallPages zero{job, 0, here}, one{job, 1, here};
};

TEST_F(TwoPages, AProcessThatCannotBeLookedAtIsNotDead) {
  if (long_tests()) GTEST_SKIP() << "their sanitizer takes every object for a foreign one while no file can be opened";
  EXPECT_EQ(state_of_one(), RankState::running);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const int file = ::open("/proc/self/stat", O_RDONLY);
  const RankState seen = state_of_one();
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_LT(file, 0);
  EXPECT_EQ(seen, RankState::running);
}

TEST_F(TwoPages, AProcessThatIsGoneOrAnotherIsDead) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  const int32_t pid = std::exchange(one.mine().pid, child);
  EXPECT_EQ(state_of_one(), RankState::dead);
  one.mine().pid = pid;
  one.mine().process_start++;
  EXPECT_EQ(state_of_one(), RankState::dead);
}

// Each call says its number twice more; those that are copied while the rank goes on do so as well.
TEST_F(TwoPages, CallsThatAreOverwrittenMeanwhileAreNotTorn) {
  CallRing ring(one.mine());
  std::atomic<bool> stop = false;
  std::thread rank([&] {
    for (int64_t n = 1; !stop; n++) {
      ring.begin_step(n);
      ring.ended(ring.begin(1, Call::all_reduce, n, n, 0));
    }
  });
  int64_t torn = 0, seen = 0, last = 0;
  for (int look = 0; look < 300 || (last == 0 && look < 100'000); look++) {
    const KnownRank known = zero.look("", {}).back();
    for (const KnownCall& c : known.calls) torn += c.number != c.bytes || c.number != c.step;
    seen += static_cast<int64_t>(known.calls.size());
    if (known.calls.empty()) continue;
    EXPECT_GE(known.calls.back().number, last);
    last = known.calls.back().number;
  }
  stop = true;
  rank.join();
  EXPECT_EQ(torn, 0) << "of " << seen;
  EXPECT_GT(seen, 0);
}

// Pages that nobody was left to remove, of jobs that began long ago.
TEST(ForgottenPages, AreRemoved) {
  const std::vector<std::string> here{machine_id()};
  const auto left_by = [&](bool killed) {
    const uint64_t job = test_job();
    const pid_t child = ::fork();
    if (child == 0) {
      const CallPages pages(job, 0, here);
      const File word(CallPages::shared_path(job, "end"), File::Use::create);
      if (killed) ::raise(SIGKILL);
      for (;;) ::pause();
    }
    for (int i = 0; i < 2000 && !fs::exists(CallPages::shared_path(job, "end")); i++)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (killed) ::waitpid(child, nullptr, 0);
    return std::pair{job, child};
  };
  const auto make_old = [](uint64_t job, const char* file) {
    const fs::path path = CallPages::shared_path(job, file);
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(25));
  };
  const auto [forgotten, gone] = left_by(true);
  const auto [recent, gone_as_well] = left_by(true);
  const auto [long_job, child] = left_by(false);
  for (const char* file : {"0", "end"}) {
    make_old(forgotten, file);
    make_old(long_job, file);
  }
  make_old(recent, "0");
  CallPages::remove_forgotten();
  for (const char* file : {"0", "end"}) {
    EXPECT_FALSE(fs::exists(CallPages::shared_path(forgotten, file))) << file;
    EXPECT_TRUE(fs::exists(CallPages::shared_path(recent, file))) << file;
    EXPECT_TRUE(fs::exists(CallPages::shared_path(long_job, file))) << file << ", of a process that lives";
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const uint64_t job : {recent, long_job}) CallPages::remove_shared(job);
  EXPECT_FALSE(fs::exists(CallPages::shared_path(recent, "end")));
}

TEST(KnownJobs, AreReadAsTheyAreWritten) {
  const KnownJob job = job_from(to_text(KnownJob{.number = 0xfedcba9876543210, .size = 512}));
  EXPECT_EQ(job.number, 0xfedcba9876543210);
  EXPECT_EQ(job.size, 512);
  for (const char* broken : {"", "\n", "of a job", "12", "12 -1", "12 0", "12 99999999999", "fedcba98765432101 2"})
    EXPECT_EQ(job_from(broken).number, 0u) << broken;
}

}  // namespace
}  // namespace megalith
