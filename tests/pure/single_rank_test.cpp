// The end of a process that is alone, from any of its threads.
#include "trainer/session/single_rank.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace megalith {
namespace {

TEST(SingleRank, AbortDestroysNothing) {
  const auto abort_beside_the_main_thread = [] {
    std::atexit([] { std::fputs("destroyed", stderr); });
    std::thread([] { SingleRank().abort(3); }).join();
  };
  EXPECT_EXIT(abort_beside_the_main_thread(), testing::ExitedWithCode(3), "^$");
}

}  // namespace
}  // namespace megalith
