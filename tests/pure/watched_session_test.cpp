// Ranks that are watched: real processes, which meet in a folder, on one node or on what they take for several.
#include "trainer/session/watched_session.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>

#include "kernels/system/file_calls.h"
#include "tests/data/scratch.h"
#include "trainer/machine/machine.h"
#include "trainer/session/file_session.h"
#include "trainer/session/recorder_pages.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

// A session each of whose ranks says that it is on a machine of its own.
class SeveralNodes : public Session {
 public:
  explicit SeveralNodes(std::unique_ptr<Session> session) : session_(std::move(session)) {
    rank_ = session_->rank();
    size_ = session_->size();
  }
  std::vector<std::string> all_gather_text(const std::string& mine) const override {
    return session_->all_gather_text(mine == machine_id() ? fmt::format("node-{} {}", rank_, mine) : mine);
  }
  std::string broadcast_text(const std::string& text) const override { return session_->broadcast_text(text); }
  void check() const override { session_->check(); }
  [[noreturn]] void abort(int status) const override {
    session_->abort(status);
    ::_exit(status);  // not reached
  }

 private:
  std::unique_ptr<Session> session_;
};

struct EndOfRank {
  int status = 0;   // or minus the signal
  std::string err;  // standard error
};

class Watched : public testing::Test {
 protected:
  using Work = std::function<void(const WatchedSession&)>;

  std::vector<EndOfRank> run(int size, double timeout, bool one_node, const Work& work) {
    std::vector<pid_t> children;
    const auto err = [&](int rank) { return scratch.path(fmt::format("err-{}", rank)); };
    for (int rank = 0; rank < size; rank++) {
      children.push_back(::fork());
      if (children.back() == 0) live(rank, size, timeout, one_node, work, err(rank));
    }
    std::vector<EndOfRank> ends;
    for (int rank = 0; rank < size; rank++) {
      int status = 0;
      ::waitpid(children[static_cast<size_t>(rank)], &status, 0);
      ends.push_back({WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), read_file(err(rank))});
    }
    return ends;
  }
  // Returns what the job that has run left in this machine's memory.
  std::vector<std::string> left_in_memory() const {
    const std::string any = RecorderPages::shared_path(job_from(read_file(scratch.path("job"))), "");
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(fs::path(any).parent_path()))
      if (entry.path().string().starts_with(any)) names.push_back(entry.path());
    return names;
  }

  const test::Scratch scratch;
  const std::string folder = scratch.path("calls"), log = scratch.path("log.txt");

 private:
  [[noreturn]] void live(int rank, int size, double timeout, bool one_node, const Work& work, const std::string& err) {
    if (!std::freopen(err.c_str(), "w", stderr)) ::_exit(9);
    try {
      std::unique_ptr<Session> inner =
          std::make_unique<FileSession>(scratch.path("meeting"), Launch{rank, size, "", "job"}, 60);
      if (!one_node) inner = std::make_unique<SeveralNodes>(std::move(inner));
      const WatchedSession session(std::move(inner), timeout);
      if (rank == 0)
        write_file(scratch.path("job"), job_name(session.recorded()->recorder().page().job),
                   {.replace = true, .durable = false});
      try {
        work(session);
      } catch (const std::exception& e) {
        fmt::print(stderr, "error: {}\n", e.what());
        session.abort(1);
      }
    } catch (const std::exception& e) {
      fmt::print(stderr, "outer error: {}\n", e.what());
    }
    std::fflush(stderr);
    ::_exit(0);
  }
};

void sleep_seconds(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// A step to whose call rank 0 does not come.
void wait_in_vain(const Session& session) {
  FlightRecorder& recorder = session.recorded()->recorder();
  recorder.begin_step(7);
  RecordedGroup data(recorder, recorder.next_id(), "data", session.rank(), session.size());
  if (session.rank() != 0) data.begin(Transfer::all_reduce, 4096);
  for (int i = 0; i < 3000; i++, sleep_seconds(0.01)) session.check();
}

void expect_last_word(const std::string& log, const std::string& words) {
  const std::string all = read_file(log);
  const size_t line = all.find("ended: ");
  ASSERT_NE(line, std::string::npos) << all;
  EXPECT_EQ(all.find('\n', line), all.size() - 1) << "it is the last, and one: " << all;
  EXPECT_NE(all.find(words, line), std::string::npos) << all;
}

TEST_F(Watched, ARankOfAnotherNodeThatDoesNotComeIsNamed) {
  const std::vector<EndOfRank> ends = run(2, 1, false, [&](const Session& session) {
    session.dump_into(folder, log);
    wait_in_vain(session);
  });
  EXPECT_EQ(ends[1].status, 1);
  EXPECT_NE(ends[1].err.find("megalith: rank 0 (process "), std::string::npos) << ends[1].err;
  EXPECT_NE(ends[1].err.find("is not waiting for others"), std::string::npos) << ends[1].err;
  EXPECT_NE(ends[1].err.find("; communication.timeout = 1 s; for details: megalith doctor"), std::string::npos)
      << ends[1].err;
  expect_last_word(log, "ended: rank 0 (process ");
  EXPECT_TRUE(fs::exists(folder + "/rank-1"));
}

// A folder of an earlier job that nobody can remove ends no start: it is set aside or, where that cannot be either,
// nothing is kept of a hang.
TEST_F(Watched, WhatCannotBeRemovedEndsNoStart) {
  for (const bool moves : {true, false}) {
    remove_all(folder);
    make_folders(folder, "");
    write_file(folder + "/message", "of an earlier job");
    const std::vector<EndOfRank> ends = run(2, 5, false, [&](const Session& session) {
      const FileHook hook([&](const FileEvent& event) {
        const bool removes = event.call == FileCall::remove && event.with_contents && event.path == folder;
        return FileFate{.error =
                            removes || (!moves && event.call == FileCall::rename && event.path == folder) ? EBUSY : 0};
      });
      fmt::print(stderr, "{}\n", session.dump_into(folder, log));
    });
    for (const EndOfRank& end : ends) EXPECT_EQ(end.status, 0) << end.err;
    const std::string words = moves ? "; it is now " + folder + ".earlier-1" : "will find nothing there";
    EXPECT_NE(ends[0].err.find(words), std::string::npos) << ends[0].err;
    EXPECT_EQ(ends[1].err, "\n") << "said once";
    EXPECT_TRUE(fs::exists(folder + (moves ? ".earlier-1" : "") + "/message"));
    fs::remove_all(scratch.path("meeting"));
  }
}

// The disk of the folder is full, or it is gone: nobody can be asked, and it is said all the same.
TEST_F(Watched, AFolderThatCannotBeWrittenDoesNotKeepTheJobFromEnding) {
  const std::vector<EndOfRank> ends = run(2, 1, false, [&](const Session& session) {
    session.dump_into(folder, log);
    session.broadcast_text("");
    if (session.rank() == 0) {
      remove_all(folder);
      write_file(folder, "in its place");
    }
    session.broadcast_text("");
    wait_in_vain(session);
  });
  EXPECT_EQ(ends[1].status, 1);
  EXPECT_NE(ends[1].err.find("megalith: rank 0 does not respond"), std::string::npos) << ends[1].err;
  expect_last_word(log, "ended: rank 0 does not respond");
}

// Before ranks remember their calls in a folder, and where they never do, those of other nodes cannot be seen.
TEST_F(Watched, OutsideOfStepsARankThatIsNotSeenMayTakeItsTime) {
  const std::vector<EndOfRank> ends = run(2, 0.5, false, [](const Session& session) {
    if (session.rank() == 0) sleep_seconds(1.5);
    session.all_gather_text("");
  });
  EXPECT_EQ(ends[0].status, 0) << ends[0].err;
  EXPECT_EQ(ends[1].status, 0) << ends[1].err;
  EXPECT_NE(ends[1].err.find("megalith: warning: rank 1 has waited for "), std::string::npos) << ends[1].err;
  EXPECT_NE(ends[1].err.find("rank 0 does not respond"), std::string::npos) << ends[1].err;
  EXPECT_TRUE(left_in_memory().empty());
}

// Messages of all ranks that are no warnings.
std::string verdicts_of(const std::vector<EndOfRank>& ends) {
  std::string said, line;
  for (const EndOfRank& end : ends)
    for (std::istringstream lines(end.err); std::getline(lines, line);)
      if (line.starts_with("megalith: ") && !line.starts_with("megalith: warning: ")) said += line + "\n";
  return said;
}

TEST_F(Watched, OutsideOfStepsARankThatIsAtWorkIsNamedAndNotEnded) {
  const std::vector<EndOfRank> ends = run(2, 0.5, true, [&](const Session& session) {
    session.dump_into(folder, log);
    if (session.rank() == 0) sleep_seconds(1.5);
    session.all_gather_text("");
  });
  for (const EndOfRank& end : ends) EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_NE(ends[1].err.find("megalith: warning: rank 1 has waited for "), std::string::npos) << ends[1].err;
  EXPECT_NE(ends[1].err.find(" s: rank 0 (process "), std::string::npos) << ends[1].err;
  EXPECT_NE(ends[1].err.find("is not waiting for others"), std::string::npos) << ends[1].err;
  EXPECT_EQ(ends[1].err.find("the job ends when"), std::string::npos) << ends[1].err;
}

TEST_F(Watched, InAStepAWarningComesBeforeTheEnd) {
  const std::vector<EndOfRank> ends = run(2, 2, true, [&](const Session& session) {
    session.dump_into(folder, log);
    wait_in_vain(session);
  });
  const size_t warning = ends[1].err.find("warning: rank 1 has waited for 0.5 s: rank 0 (process ");
  ASSERT_NE(warning, std::string::npos) << ends[1].err;
  EXPECT_NE(ends[1].err.find("; the job ends when a wait has lasted 2 s", warning), std::string::npos) << ends[1].err;
  EXPECT_TRUE(verdicts_of(ends).starts_with("megalith: rank 0 (process ")) << verdicts_of(ends);
}

// Where all ranks wait outside of steps, nobody reads or writes: what carries their texts is at fault.
TEST_F(Watched, OutsideOfStepsAWaitEndsWhereNobodyIsAtWork) {
  const std::vector<EndOfRank> ends = run(2, 1, true, [&](const Session& session) {
    session.dump_into(folder, log);
    session.recorded()->begin(Transfer::texts, -1);
    for (int i = 0; i < 3000; i++, sleep_seconds(0.01)) session.check();
  });
  for (const EndOfRank& end : ends) EXPECT_EQ(end.status, 1) << end.err;
  const std::string said = verdicts_of(ends);
  EXPECT_TRUE(said.starts_with("megalith: ranks 0, 1 are in texts of all ranks ")) << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_TRUE(fs::exists(folder + "/message"));
  for (const char* rank : {"/rank-0", "/rank-1"}) EXPECT_TRUE(fs::exists(folder + rank));
}

TEST_F(Watched, ARankThatIsStoppedOutsideOfStepsIsNamed) {
  const std::vector<EndOfRank> ends = run(3, 1, true, [&](const Session& session) {
    session.dump_into(folder, log);
    if (session.rank() == 2) ::raise(SIGSTOP);
    session.all_gather_text("");
  });
  EXPECT_EQ(ends[2].status, -SIGKILL);
  const std::string said = verdicts_of(ends);
  EXPECT_TRUE(said.starts_with("megalith: rank 2 (process ")) << said;
  EXPECT_NE(said.find("is stopped, by a signal or a debugger"), std::string::npos) << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

// In any exchange, without MPI's help; and where no run folder remembers it, nothing is left of the job.
TEST_F(Watched, ARankThatDiesIsNamed) {
  for (const int victim : {0, 2}) {
    SCOPED_TRACE(victim);
    const std::vector<EndOfRank> ends = run(3, 60, true, [victim](const Session& session) {
      session.all_gather_text("here");
      if (session.rank() == victim) ::raise(SIGKILL);
      session.broadcast_text("");
      session.all_gather_text("still here");
    });
    std::string said;
    for (int rank = 0; rank < 3; rank++) {
      const EndOfRank& end = ends[static_cast<size_t>(rank)];
      EXPECT_EQ(end.status, rank == victim ? -SIGKILL : 1) << rank;
      said += end.err;
    }
    const size_t verdict = said.find(fmt::format("megalith: rank {} (process ", victim));
    ASSERT_NE(verdict, std::string::npos) << said;
    EXPECT_EQ(said.find("megalith: ", verdict + 1), std::string::npos) << "once: " << said;
    EXPECT_NE(said.find("has died", verdict), std::string::npos) << said;
    EXPECT_EQ(left_in_memory(), std::vector<std::string>());
  }
}

TEST_F(Watched, ARankThatGivesUpLeavesNothing) {
  const std::vector<EndOfRank> ends = run(2, 60, true, [](const Session& session) {
    session.all_gather_text("here");
    if (session.rank() == 1) session.abort(7);
    session.all_gather_text("still here");
  });
  EXPECT_EQ(ends[1].status, 7);
  EXPECT_EQ(ends[0].status, 1);
  EXPECT_NE(ends[0].err.find("error: rank 1 of 2 has ended with an error"), std::string::npos) << ends[0].err;
  EXPECT_EQ(left_in_memory(), std::vector<std::string>());
}

}  // namespace
}  // namespace megalith
