// Ranks that meet in a folder: real processes, which come late or never, die, leave, or are those of another job.
#include "trainer/session/file_session.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/data/scratch.h"
#include "tests/message_of.h"
#include "trainer/communication/mpi.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

constexpr double soon = 3, never = 60;  // time-outs, in seconds: beyond what a busy disk delays, beyond all delays

// Says what became of a rank: what it said at last, or the error it met; its exit status, or minus the signal.
struct End {
  std::string said;
  int status = 0;
};

class FileSessions : public testing::Test {
 protected:
  using Work = std::function<std::string(const Session&)>;

  void start(const Launch& launch, double timeout, const Work& work) {
    const std::string result = scratch_.path(fmt::format("result-{}", started_++));
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto say = [&](const std::string& text) { std::ofstream(result) << text; };
      try {
        const FileSession session(folder_, launch, timeout);
        say(work(session));
      } catch (const std::exception& e) {
        say(fmt::format("error: {}", e.what()));
        ::_exit(1);
      }
      ::_exit(0);
    }
    children_.push_back(child);
    results_.push_back(result);
  }
  // In the order they were started.
  std::vector<End> finish() {
    std::vector<End> ends;
    for (size_t i = 0; i < children_.size(); i++) {
      int status = 0;
      ::waitpid(children_[i], &status, 0);
      std::ifstream file(results_[i]);
      ends.push_back({std::string(std::istreambuf_iterator<char>(file), {}),
                      WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status)});
    }
    children_.clear();
    results_.clear();
    return ends;
  }
  std::vector<End> run(const std::vector<int>& ranks, int size, double timeout, const Work& work) {
    for (int rank : ranks) start({rank, size, "", "job"}, timeout, work);
    return finish();
  }
  void wait_for(const std::vector<std::string>& names) const {
    for (const std::string& name : names)
      for (int i = 0; i < 1000 * never && !fs::exists(folder_ + "/" + name); i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<std::string> left_behind() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) names.push_back(entry.path());
    return names;
  }
  void expect_all_say(const std::vector<End>& ends, const std::string& words) {
    for (size_t i = 0; i < ends.size(); i++)
      EXPECT_NE(ends[i].said.find(words), std::string::npos) << i << " says " << ends[i].said;
  }

  const test::Scratch scratch_;
  const std::string folder_ = scratch_.path("meeting/here");
  std::vector<pid_t> children_;
  std::vector<std::string> results_;
  int started_ = 0;
};

// The texts of all ranks are theirs, in order, as often as they are asked for.
std::string talk(const Session& s) {
  for (int round = 0; round < 5; round++) {
    const auto text_of = [&](int rank) {
      return std::string(static_cast<size_t>(rank * 5000 * round), static_cast<char>(rank * 7)) +
             fmt::format("{} {}\n", rank, round);
    };
    const std::vector<std::string> all = s.all_gather_text(text_of(s.rank()));
    CHECK(static_cast<int>(all.size()) == s.size(), "{} texts", all.size());
    for (int r = 0; r < s.size(); r++)
      CHECK(all[static_cast<size_t>(r)] == text_of(r), "rank {}'s text of round {} is wrong", r, round);
    for (const std::string& text : {std::string(), std::string(100'000, 'y'), std::string("a\0b", 3)})
      CHECK(s.broadcast_text(s.rank() == 0 ? text : "another") == text, "rank 0's text is wrong");
    if (s.rank() == round) CHECK(s.all_gather_text("")[0].empty(), "not empty");
    if (s.rank() != round) s.all_gather_text("");
  }
  return fmt::format("{} of {}, {} of {} here", s.rank(), s.size(), s.rank_on_this_node(), s.ranks_on_this_node());
}

TEST_F(FileSessions, TextsGoRound) {
  for (int size : {2, 3, 8}) {
    std::vector<int> ranks;
    for (int r = size; r-- > 0;) ranks.push_back(r);
    const std::vector<End> ends = run(ranks, size, never, talk);
    for (size_t i = 0; i < ranks.size(); i++)
      EXPECT_EQ(ends[i].said, fmt::format("{0} of {1}, {0} of {1} here", ranks[i], size));
    EXPECT_EQ(left_behind(), std::vector<std::string>());
  }
}

TEST_F(FileSessions, RanksMayComeLate) {
  for (int late : {0, 2}) {
    for (int r = 0; r < 3; r++)
      if (r != late) start({r, 3, "", "job"}, never, talk);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    start({late, 3, "", "job"}, never, talk);
    expect_all_say(finish(), "of 3 here");
    EXPECT_EQ(left_behind(), std::vector<std::string>());
  }
}

TEST_F(FileSessions, WhatAnEarlierJobLeftIsNotTakenForThisOne) {
  // Two that were killed while their ranks met, and one later.
  const auto killed_once_there = [&](const std::vector<int>& ranks, const std::vector<std::string>& files) {
    for (int r : ranks) start({r, 3, "", "job"}, never, [](const Session&) { return "they have met"; });
    wait_for(files);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // time to take what is there for this job's
    for (pid_t child : children_) ::kill(child, SIGKILL);
    for (const End& end : finish()) EXPECT_EQ(end.status, -SIGKILL);
    for (const std::string& name : files) EXPECT_TRUE(fs::exists(folder_ + "/" + name)) << name;
  };
  killed_once_there({0, 2}, {"job.start"});
  killed_once_there({1, 2}, {"job.start", "job.hello.1", "job.hello.2"});
  run({0, 1, 2}, 3, never, [](const Session& s) {
    s.all_gather_text("the dead");
    return ::raise(SIGKILL) == 0 ? "" : "";
  });
  const size_t before = left_behind().size();
  EXPECT_GE(before, 2u);
  for (int job = 0; job < 3; job++) {
    expect_all_say(run({0, 1, 2}, 3, never, talk), "of 3 here");
    EXPECT_LE(left_behind().size(), before);
  }
  EXPECT_FALSE(fs::exists(folder_ + "/job.start"));
  EXPECT_FALSE(fs::exists(folder_ + "/job.hello.2"));
}

TEST_F(FileSessions, JobsOfOtherNamesDoNotMeet) {
  for (const char* name : {"47-0", "48-0"})
    for (int r = 0; r < 2; r++)
      start({r, 2, "srun", name}, never, [name = std::string(name)](const Session& s) {
        for (const std::string& text : s.all_gather_text(name)) CHECK(text == name, "{} is in {}", text, name);
        return talk(s);
      });
  expect_all_say(finish(), "of 2 here");
  EXPECT_EQ(left_behind(), std::vector<std::string>());
}

// Jobs whose ranks wait in vain run at once, so that the time-out is waited for once.
TEST_F(FileSessions, ARankThatDoesNotComeIsNamed) {
  struct Job {
    std::vector<int> ranks;
    int size;
    std::string error;
  };
  const std::vector<Job> jobs = {
      {{0, 2},
       3,
       fmt::format("rank 1 of 3 has not connected through {} within {:g} s; start all ranks at once", folder_, soon)},
      {{0, 2}, 5, "ranks 1, 3, 4 of 5 have not connected through "},
      {{1, 2}, 3, "rank 0 of 3 has not connected through "}};
  for (size_t j = 0; j < jobs.size(); j++)
    for (int r : jobs[j].ranks) start({r, jobs[j].size, "srun", fmt::format("job-{}", j)}, soon, talk);
  const std::vector<End> ends = finish();
  for (size_t j = 0; j < jobs.size(); j++) expect_all_say({ends[2 * j], ends[2 * j + 1]}, jobs[j].error);
  EXPECT_EQ(left_behind(), std::vector<std::string>());
}

// This session does not say how long ranks that are there may wait for another.
TEST_F(FileSessions, ARankThatHasComeMayTakeItsTime) {
  const double timeout = 0.5;
  for (const End& end : run({0, 1}, 2, timeout, [&](const Session& s) {
         if (s.rank() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(3 * timeout));
         return talk(s);
       }))
    EXPECT_NE(end.said.find("of 2 here"), std::string::npos) << end.said;
}

TEST_F(FileSessions, ARankThatEndsWithAnErrorEndsTheOthersAtOnce) {
  for (bool waiting_elsewhere : {false, true}) {
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<End> ends = run({0, 1, 2}, 3, never, [&](const Session& s) {
      s.all_gather_text("here");
      if (s.rank() == 2) s.abort(7);
      while (waiting_elsewhere) {
        s.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      return talk(s);
    });
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 10);
    for (int r : {0, 1})
      EXPECT_EQ(ends[static_cast<size_t>(r)].said,
                "error: rank 2 of 3 has ended with an error; its own output has the reason");
    EXPECT_EQ(ends[2].status, 7);
    EXPECT_EQ(left_behind(), std::vector<std::string>());
  }
}

TEST_F(FileSessions, ARankThatIsDoneIsMissedWhereItIsNeeded) {
  const std::vector<End> ends = run({0, 1, 2}, 3, never, [&](const Session& s) {
    s.all_gather_text("here");
    if (s.rank() == 1) return std::string("done");
    s.check();
    s.all_gather_text("still here");
    return std::string("alone");
  });
  for (size_t r : {0u, 2u}) EXPECT_EQ(ends[r].said, "error: rank 1 of 3 has left the job in order");
  EXPECT_EQ(left_behind(), std::vector<std::string>());
}

TEST_F(FileSessions, ARankIsOneProcess) {
  for (int r : {0, 1, 1})
    start({r, 2, "", "job"}, soon, [](const Session& s) {
      s.all_gather_text("");
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      s.all_gather_text("");
      return "well";
    });
  int well = 0;
  for (const End& end : finish()) well += end.said == "well";
  EXPECT_LE(well, 2);
}

TEST_F(FileSessions, AloneNeedsNoFolderAndCarriesTensors) {
  const FileSession alone(folder_, {}, soon);
  EXPECT_EQ(talk(alone), "0 of 1, 0 of 1 here");
  EXPECT_EQ(host_world(alone)->size(), 1);
  alone.require_mpi();
  alone.check();
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(FileSessions, TensorsOfTheHostNeedMpi) {
  for (const End& end : run({0, 1}, 2, never, [](const Session& s) {
         s.require_mpi();
         return "carried";
       }))
    EXPECT_NE(end.said.find("the 2 ranks of this job connected through " + folder_ + " and not through MPI"),
              std::string::npos)
        << end.said;
  expect_all_say(run({0, 1}, 2, never,
                     [](const Session& s) {
                       s.require_mpi();
                       return "carried";
                     }),
                 "communication.backend = nccl");
}

TEST_F(FileSessions, AFolderThatCannotBeWrittenIsNamed) {
  scratch_.write("file", "");
  EXPECT_NE(message_of([&] {
              FileSession(scratch_.path("file"), {0, 2, "", "job"}, soon);
            }).find("cannot make the folder"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              FileSession("/proc/self", {1, 2, "", "job"}, soon);
            }).find("cannot write /proc/self/job.hello.1"),
            std::string::npos);
}

}  // namespace
}  // namespace megalith
