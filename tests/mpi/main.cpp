// Runs every test on every rank. Rank 0 prints as usual, the others only what failed. A test that failed on one rank
// fails the program on all: at the end of each test the ranks compare notes. A failure that ends a test early (ASSERT,
// an exception) would leave the other ranks waiting in a collective, so it ends the job.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "tests/mpi/session.h"
#include "trainer/session/mpi_session.h"
#include "trainer/session/watched_session.h"

namespace megalith {

namespace {

const Session* the_session = nullptr;

// What hangs is named before whoever runs this loses patience. Ranks may share a core, and memory may be checked.
constexpr double longest_wait = 30;  // seconds

class FailuresOfAllRanks : public testing::EmptyTestEventListener {
 public:
  bool any() const { return any_; }

 private:
  void OnTestStart(const testing::TestInfo& test) override {
    // Remembered, because the framework must not be asked while it reports a result: it would wait for itself.
    test_ = fmt::format("{}.{}", test.test_suite_name(), test.name());
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    if (session().rank() != 0)
      fmt::print(stderr, "rank {}: {}: {}:{}: {}\n", session().rank(), test_,
                 result.file_name() ? result.file_name() : "", result.line_number(), result.message());
    if (result.fatally_failed() && session().size() > 1) {
      std::fflush(nullptr);
      session().abort(1);
    }
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    const std::vector<std::string> failed = session().all_gather_text(test.result()->Failed() ? "failed" : "");
    for (size_t r = 0; r < failed.size(); r++) {
      if (failed[r].empty()) continue;
      any_ = true;
      if (session().rank() == 0) fmt::print("{} failed on rank {}\n", test_, r);
    }
  }

  std::string test_;
  bool any_ = false;
};

}  // namespace

const Session& session() { return *the_session; }

}  // namespace megalith

int main(int argc, char** argv) {
  const megalith::WatchedSession mpi(std::make_unique<megalith::MpiSession>(&argc, &argv, megalith::longest_wait),
                                     megalith::longest_wait);
  megalith::the_session = &mpi;
  testing::InitGoogleTest(&argc, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (mpi.rank() != 0) delete listeners.Release(listeners.default_result_printer());
  auto* failures = new megalith::FailuresOfAllRanks;  // the framework's from here on
  listeners.Append(failures);
  const int status = RUN_ALL_TESTS();
  return failures->any() ? 1 : status;
}
