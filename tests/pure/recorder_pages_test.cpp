// Pages of flight recorders in this machine's shared memory, of ranks that are this process or its children.
#include "trainer/session/recorder_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/long_tests.h"
#include "trainer/machine/machine.h"

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
    const std::set<RankState> others = zero.states_of_others();
    return others.size() == 1 ? *others.begin() : RankState::unseen;
  }

  const uint64_t job = test_job();
  const std::vector<std::string> here{machine_id(), machine_id()};
  RecorderPages zero{job, 0, here}, one{job, 1, here};
};

TEST_F(TwoPages, AProcessThatCannotBeLookedAtIsNotDead) {
  if (!taken("TwoPages.AProcessThatCannotBeLookedAtIsNotDead")) GTEST_SKIP() << "a sanitizer opens files here";
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
  FlightRecorder recorder(one.mine());
  std::atomic<bool> stop = false;
  std::thread rank([&] {
    for (int64_t n = 1; !stop; n++) {
      recorder.begin_step(n);
      recorder.begin(1, Transfer::all_reduce, n, n, 0).ended();
    }
  });
  int64_t torn = 0, seen = 0, last = 0;
  for (int look = 0; look < 300 || (last == 0 && look < 100'000); look++) {
    const RankDump dump = zero.look("", {}).back();
    for (const DumpedCall& c : dump.calls) torn += c.number != c.bytes || c.number != c.step;
    seen += static_cast<int64_t>(dump.calls.size());
    if (dump.calls.empty()) continue;
    EXPECT_GE(dump.calls.back().number, last);
    last = dump.calls.back().number;
  }
  stop = true;
  rank.join();
  EXPECT_EQ(torn, 0) << "of " << seen;
  EXPECT_GT(seen, 0);
}

// What a page says of a process is what anybody may have written there who could.
TEST_F(TwoPages, OnlyAStoppedProcessOfThisProgramIsKilled) {
  const auto stopped = [](bool another_program) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (another_program) ::execl("/bin/sleep", "sleep", "60", nullptr);
      for (;;) ::pause();
    }
    const auto program = [](const std::string& pid) {
      std::error_code absent;
      return fs::read_symlink("/proc/" + pid + "/exe", absent);
    };
    while (another_program && program(std::to_string(child)) == program("self"))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(child, SIGSTOP);
    ::waitpid(child, nullptr, WUNTRACED);
    return child;
  };
  const auto began = [](pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string word;
    for (int field = 0; field < 22; field++) file >> word;
    return std::stoull(word);
  };
  const auto is_killed = [&](pid_t child, uint64_t start) {
    one.mine().pid = child;
    one.mine().process_start = start;
    EXPECT_EQ(state_of_one(), RankState::stopped);
    const bool killed = zero.kill_stopped();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return killed;
  };
  const pid_t own = stopped(false), unknown = stopped(false), other = stopped(true);
  EXPECT_TRUE(is_killed(own, began(own)));
  EXPECT_FALSE(is_killed(unknown, 0)) << "when it began is not known";
  EXPECT_FALSE(is_killed(other, began(other))) << "it is another program";
}

TEST_F(TwoPages, NoOtherUserMayOpenWhatIsShared) {
  const fs::path page = RecorderPages::shared_path(job, "0");
  EXPECT_EQ(fs::status(page).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  const fs::path word = RecorderPages::shared_path(job, "end");
  { const File file(word, File::Use::create_own); }
  EXPECT_EQ(fs::status(word).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  RecorderPages::remove_shared(job);
}

// A page that another user has put where a rank's is looked for, or a link that leads there.
TEST(SharedPages, OfAnotherUserAreNotReadAndNotRemoved) {
  const std::vector<std::string> here{machine_id(), machine_id()};
  const uint64_t job = test_job();
  RecorderPages zero(job, 0, here);
  const std::string path = RecorderPages::shared_path(job, "1"), elsewhere = path + "-elsewhere";
  {
    const RecorderPages real(test_job(), 1, here);
    fs::copy_file(RecorderPages::shared_path(test_job() - 1, "1"), elsewhere);
  }
  fs::create_symlink(elsewhere, path);
  zero.open_others();
  EXPECT_EQ(zero.states_of_others().size(), 0u) << "by a link";
  if (::geteuid() == 0) {
    fs::remove(path);
    fs::copy_file(elsewhere, path);
    ASSERT_EQ(::chown(path.c_str(), 4711, 4711), 0);
    zero.open_others();
    EXPECT_EQ(zero.states_of_others().size(), 0u) << "of another user";
    RecorderPages::remove_shared(job);
    EXPECT_TRUE(fs::exists(path)) << "it is another user's";
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
    zero.open_others();
    EXPECT_EQ(zero.states_of_others().size(), 1u) << "else the test shows nothing";
  }
  fs::remove(path);
  fs::remove(elsewhere);
  RecorderPages::remove_shared(job);
}

// Pages that nobody was left to remove, of jobs that began long ago.
TEST(ForgottenPages, AreRemoved) {
  const std::vector<std::string> here{machine_id()};
  const auto left_by = [&](bool killed) {
    const uint64_t job = test_job();
    const pid_t child = ::fork();
    if (child == 0) {
      const RecorderPages pages(job, 0, here);
      const File word(RecorderPages::shared_path(job, "end"), File::Use::create);
      if (killed) ::raise(SIGKILL);
      for (;;) ::pause();
    }
    for (int i = 0; i < 2000 && !fs::exists(RecorderPages::shared_path(job, "end")); i++)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (killed) ::waitpid(child, nullptr, 0);
    return std::pair{job, child};
  };
  const auto make_old = [](uint64_t job, const char* file) {
    const fs::path path = RecorderPages::shared_path(job, file);
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
  RecorderPages::remove_forgotten();
  for (const char* file : {"0", "end"}) {
    EXPECT_FALSE(fs::exists(RecorderPages::shared_path(forgotten, file))) << file;
    EXPECT_TRUE(fs::exists(RecorderPages::shared_path(recent, file))) << file;
    EXPECT_TRUE(fs::exists(RecorderPages::shared_path(long_job, file))) << file << ", of a process that lives";
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const uint64_t job : {recent, long_job}) RecorderPages::remove_shared(job);
  EXPECT_FALSE(fs::exists(RecorderPages::shared_path(recent, "end")));
}

TEST(JobNames, AreReadAsTheyAreWritten) {
  EXPECT_EQ(job_from(job_name(0xfedcba9876543210)), 0xfedcba9876543210);
  for (const char* broken : {"", "\n", "of a job", "12", "megalith-", "megalith-12.", "megalith-fedcba9876543210",
                             "megalith-fedcba98765432101.", "megalith-fedcba987654321x."})
    EXPECT_EQ(job_from(broken), 0u) << broken;
}

}  // namespace
}  // namespace megalith
