// How a run ended stands in its log once, whichever rank says it.
#include "trainer/log/log.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "tests/data/scratch.h"
#include "trainer/machine/console.h"

namespace megalith {
namespace {

// Returns the lines of a log, without their times.
std::vector<std::string> said_in(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(line.substr(20));
  return lines;
}

class LogTest : public testing::Test {
 protected:
  ~LogTest() override { log_to_console(); }
  const test::Scratch scratch_;
  const std::string path_ = scratch_.path("log.txt");
  using Lines = std::vector<std::string>;
};

TEST_F(LogTest, AnEndIsOneLineOfTheFile) {
  log_to_console_and(path_);
  log_info("a step");
  testing::internal::CaptureStdout();
  EXPECT_TRUE(log_ended("two\nlines"));
  EXPECT_FALSE(log_ended("what follows from that"));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  log_info("what another thread was at");
  EXPECT_EQ(said_in(path_), (Lines{"a step", "ended: two lines"}));
  log_to_console_and(path_);
  EXPECT_TRUE(log_ended("another start, before it has said anything"));
  EXPECT_EQ(said_in(path_).back(), "ended: another start, before it has said anything");
}

TEST_F(LogTest, AReaderThatIsGoneIsSaidOnceInTheFile) {
  ignore_broken_pipes();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  std::fflush(stdout);
  const int before = ::dup(STDOUT_FILENO);
  ::dup2(ends[1], STDOUT_FILENO);
  ::close(ends[1]);
  log_to_console_and(path_);
  for (const char* line : {"one", "two", "three"}) log_info("{}", line);
  ::dup2(before, STDOUT_FILENO);
  ::close(before);
  ::signal(SIGPIPE, SIG_DFL);
  EXPECT_EQ(
      said_in(path_),
      (Lines{
          "one",
          "warning: standard output cannot be written: Broken pipe. The run continues, and its lines are in this file",
          "two", "three"}));
}

TEST_F(LogTest, ABarMakesRoomForEachLineOfTheConsole) {
  log_to_console_and(path_);
  int cleared = 0;
  before_console_lines([&] { cleared++; });
  testing::internal::CaptureStdout();
  log_info("on both");
  log_line("on the console", LogTo::console);
  EXPECT_EQ(cleared, 2);
  log_line("in the file", LogTo::file);
  EXPECT_EQ(cleared, 2);
  before_console_lines({});
  log_info("without a bar");
  EXPECT_EQ(cleared, 2);
  testing::internal::GetCapturedStdout();
}

TEST_F(LogTest, AnyRankMaySayTheEnd) {
  log_nowhere(path_);
  EXPECT_TRUE(log_ended("there is no file, and none is made"));
  EXPECT_FALSE(std::filesystem::exists(path_));
  log_to_console_and(path_);
  log_info("a step");
  log_nowhere(path_);
  log_info("not of rank 0");
  EXPECT_TRUE(log_ended("rank 1: an error"));
  log_nowhere(path_);
  log_to_console();
  EXPECT_TRUE(log_ended("there is no run"));
  EXPECT_EQ(said_in(path_), (Lines{"a step", "ended: rank 1: an error"}));
}

TEST_F(LogTest, NothingFollowsTheEndThatAnotherRankSays) {
  log_to_console_and(path_);
  log_info("a step");
  const pid_t rank = ::fork();
  if (rank == 0) {
    log_nowhere(path_);
    ::_exit(log_ended("rank 1: an error") ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(rank, &status, 0), rank);
  EXPECT_EQ(status, 0);
  log_info("what rank 0 was at");
  EXPECT_FALSE(log_ended("what follows from that"));
  EXPECT_EQ(said_in(path_), (Lines{"a step", "ended: rank 1: an error"}));
}

}  // namespace
}  // namespace megalith
