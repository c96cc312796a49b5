// Errors of one rank are errors of the job, and text goes round between the ranks.
#include "trainer/job/agreement.h"

#include "tests/mpi/session.h"
#include "trainer/communication/mpi.h"
#include "trainer/job/ranks_agree.h"

namespace megalith {
namespace {

std::string job_error_of(const std::function<void()>& work) {
  try {
    together(session(), work);
  } catch (const JobError& e) {
    return e.what();
  } catch (const std::exception& e) {
    return fmt::format("not a JobError: {}", e.what());
  }
  return "nothing was thrown";
}

TEST(Together, GoesOnWhereNobodyFailed) {
  int calls = 0;
  EXPECT_EQ(job_error_of([&] { calls++; }), "nothing was thrown");
  EXPECT_EQ(calls, 1);
}

TEST(Together, OneRanksErrorIsEverybodys) {
  for (int culprit = 0; culprit < session().size(); culprit++) {
    const std::string message = job_error_of([&] {
      if (session().rank() == culprit) FAIL("the disk of {} is full", culprit);
    });
    const std::string said = fmt::format("the disk of {} is full", culprit);
    EXPECT_EQ(message, session().size() == 1 ? said : fmt::format("rank {}: {}", culprit, said));
  }
}

TEST(Together, TheSameErrorOfAllIsSaidOnce) {
  EXPECT_EQ(job_error_of([] { FAIL("no such file"); }), "no such file");
}

TEST(Together, EqualErrorsShareALine) {
  if (session().size() < 3) return;  // nobody to share with
  const std::string message = job_error_of([] {
    if (session().rank() == 1) FAIL("that");
    if (session().rank() != 0) FAIL("this");
  });
  std::string others;
  for (int r = 2; r < session().size(); r++) others += fmt::format("{}{}", r > 2 ? ", " : "", r);
  EXPECT_EQ(message, fmt::format("rank 1: that\nrank {}: this", others));
}

// Twelve ranks that all say something else.
class Babel : public Session {
 public:
  Babel() { size_ = 12; }
  std::vector<std::string> all_gather_text(const std::string& mine) const override {
    std::vector<std::string> all;
    for (int r = 0; r < size_; r++) all.push_back(fmt::format("{} of {}", mine, r));
    return all;
  }
  std::string broadcast_text(const std::string& text) const override { return text; }
  [[noreturn]] void abort(int status) const override { std::exit(status); }
};

TEST(Together, MoreThanEightErrorsAreCounted) {
  const std::string text = merge_messages(Babel(), "that");
  EXPECT_TRUE(text.ends_with("\nrank 7: that of 7\nand 4 more")) << text;
}

TEST(Together, EveryKindOfExceptionCounts) {
  EXPECT_NE(job_error_of([] {
              if (session().rank() == session().size() - 1) throw std::bad_alloc();
            }).find("out of memory"),
            std::string::npos);
  EXPECT_NE(job_error_of([] {
              if (session().rank() == session().size() - 1) throw std::runtime_error("");
            }).find("an error without a message"),
            std::string::npos);
}

TEST(Session, TextsOfAllRanksInOrder) {
  const int rank = session().rank();
  const std::string mine(static_cast<size_t>(rank * 1000), static_cast<char>('a' + rank));
  const std::vector<std::string> all = session().all_gather_text(mine);
  ASSERT_EQ(static_cast<int>(all.size()), session().size());
  for (int r = 0; r < session().size(); r++)
    EXPECT_EQ(all[static_cast<size_t>(r)], std::string(static_cast<size_t>(r * 1000), static_cast<char>('a' + r)));
}

TEST(Session, RankZerosTextIsBroadcast) {
  for (const std::string& text : {std::string(), std::string("x"), std::string(100'000, 'y'), std::string("a\0b", 3)})
    EXPECT_EQ(session().broadcast_text(session().rank() == 0 ? text : "another"), text);
}

TEST(Session, KnowsItsMachine) {
  EXPECT_GE(session().ranks_on_this_node(), 1);
  EXPECT_LE(session().ranks_on_this_node(), session().size());
}

// A path is any bytes, and JSON's text is not.
TEST(RanksAgree, APathNeedNotBeUtf8) {
  Config config;
  config.run.output = "run \xff";
  EXPECT_NO_THROW(check_ranks_agree(config, session()));
}

// ctest runs this one alone and expects the program to fail: it shows that one rank's failure is the program's.
TEST(Planted, DISABLED_FailsOnTheLastRank) { EXPECT_NE(session().rank(), session().size() - 1); }
TEST(Planted, DISABLED_EndsEarlyOnTheLastRank) {
  ASSERT_NE(session().rank(), session().size() - 1);
  Stream s(World::cpu);
  host_world(session())->barrier(s);
}

}  // namespace
}  // namespace megalith
