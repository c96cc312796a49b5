// Long work is shown: one piece at a time, not too often, and only if there is a display.
#include "kernels/system/long_work.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace megalith {
namespace {

struct Recorded : WorkDisplay {
  std::vector<std::string> begun;
  std::vector<double> shares;
  int ended = 0;
  Recorded() { show_long_work(this); }
  ~Recorded() override { show_long_work(nullptr); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  void begin(const std::string& what) override { begun.push_back(what); }
  void show(double share) override { shares.push_back(share); }
  void end() override { ended++; }
};

void wait_for_the_next_call() { std::this_thread::sleep_for(std::chrono::milliseconds(120)); }

TEST(LongWork, ShowsItsShareOfTheWork) {
  Recorded display;
  {
    LongWork work("counting", 200);
    wait_for_the_next_call();
    work.advance(50);
    wait_for_the_next_call();
    work.advance(100);
    wait_for_the_next_call();
    work.advance(100);  // more than was said
  }
  EXPECT_EQ(display.begun, std::vector<std::string>{"counting"});
  EXPECT_EQ(display.shares, (std::vector<double>{0.25, 0.75, 1}));
  EXPECT_EQ(display.ended, 1);
}

TEST(LongWork, CallsTheDisplaySeldom) {
  Recorded display;
  LongWork work("counting", 1'000'000);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < 200'000; i++) work.advance(1);
    });
  for (std::thread& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LE(static_cast<double>(display.shares.size()), 10 * seconds);
}

TEST(LongWork, WorkInsideOtherWorkIsNotShown) {
  Recorded display;
  {
    LongWork outer("outer", 2);
    {
      LongWork inner("inner", 2);
      wait_for_the_next_call();
      inner.advance(1);
    }
    outer.advance(1);
  }
  LongWork later("later", 1);
  EXPECT_EQ(display.begun, (std::vector<std::string>{"outer", "later"}));
  EXPECT_EQ(display.shares, std::vector<double>{0.5});
  EXPECT_EQ(display.ended, 1);
}

TEST(LongWork, WithoutADisplayNothingHappens) {
  LongWork work("unseen", 0);
  wait_for_the_next_call();
  work.advance(1);
}

}  // namespace
}  // namespace megalith
