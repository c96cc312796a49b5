// Real signals to this process, and what becomes of them.
#include "trainer/session/signal_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace megalith {
namespace {

// The watch would have ended the process with this.
class EndOfProcess {
 public:
  SignalWatch::Limits limits(double seconds, double needed) {
    return {.seconds = seconds,
            .bound = "the test",
            .needed = [needed] { return needed; },
            .end =
                [this](int status, const std::string& why) {
                  const std::lock_guard lock(mutex_);
                  status_ = status;
                  why_ = why;
                  changed_.notify_all();
                }};
  }
  // Waits for it; 0: it has not come within so many seconds.
  int status(double within = 20) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(within), [&] { return status_ != 0; });
    return status_;
  }
  std::string why() {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int status_ = 0;
  std::string why_;
};

void pause_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void send_to_this_process(int signal) {
  ::kill(::getpid(), signal);
  pause_for(0.05);  // for the thread of the watch, which alone takes it
}

// Signals that came during a test are ignored once its watch is gone; the next wants their own action.
class SignalWatchTest : public testing::Test {
 protected:
  ~SignalWatchTest() override {
    for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_DFL);
  }
  EndOfProcess end_;
};

TEST_F(SignalWatchTest, ends_at_once_while_there_is_nothing_to_save) {
  SignalWatch watch(end_.limits(1000, 0));
  EXPECT_EQ(end_.status(0.3), 0);
  send_to_this_process(SIGTERM);
  EXPECT_EQ(end_.status(), 128 + SIGTERM);
  EXPECT_EQ(end_.why(), "SIGTERM");
}

TEST_F(SignalWatchTest, notes_the_first_and_ends_with_the_second) {
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    SCOPED_TRACE(signal_name(signal));
    ::signal(SIGHUP, SIG_DFL);  // the watch before has left it ignored
    EndOfProcess end;
    SignalWatch watch(end.limits(1000, 0));
    watch.hold();
    EXPECT_FALSE(watch.asked());
    send_to_this_process(signal);
    send_to_this_process(signal == SIGINT ? SIGTERM : signal);  // the same again, as launchers do
    for (int i = 0; i < 400 && !watch.asked(); i++) pause_for(0.05);
    ASSERT_TRUE(watch.asked());
    EXPECT_EQ(watch.asked()->signal, signal);
    EXPECT_EQ(watch.asked()->bound, "the test");
    EXPECT_LE(watch.asked()->seconds_left, 1000);
    EXPECT_GT(watch.asked()->seconds_left, 900);
    EXPECT_EQ(end.status(0.1), 0);
    if (signal != SIGUSR2) continue;  // of the seconds that the rest takes, one is enough
    pause_for(1.1);
    send_to_this_process(SIGHUP);  // of a terminal at which nobody can mean a second one
    EXPECT_EQ(end.status(0.1), 0);
    send_to_this_process(SIGINT);
    EXPECT_EQ(end.status(), 128 + SIGINT);
    EXPECT_EQ(end.why(), "SIGUSR2, and then SIGINT");
  }
}

TEST_F(SignalWatchTest, ends_when_the_time_is_over) {
  SignalWatch watch(end_.limits(0.3, 0.1));
  watch.hold();
  send_to_this_process(SIGUSR1);
  EXPECT_EQ(end_.status(), 128 + SIGUSR1);
  EXPECT_NE(end_.why().find("SIGUSR1; the grace period set by the test has expired"), std::string::npos) << end_.why();
}

TEST_F(SignalWatchTest, ends_when_the_time_cannot_suffice) {
  SignalWatch watch(end_.limits(1000, 5000));
  watch.hold();
  send_to_this_process(SIGINT);
  EXPECT_EQ(end_.status(), 128 + SIGINT);
  EXPECT_NE(end_.why().find("take 5e+03 s or more, but 1e+03 s are left by the test"), std::string::npos) << end_.why();
}

// What another rank got.
TEST_F(SignalWatchTest, ends_when_the_time_of_another_rank_is_over) {
  SignalWatch watch(end_.limits(1000, 0));
  watch.hold();
  watch.agree(SIGUSR2, 0.1);
  EXPECT_EQ(end_.status(), 128 + SIGUSR2);
  EXPECT_EQ(end_.why().find("SIGUSR2 on another rank"), 0u) << end_.why();
}

TEST_F(SignalWatchTest, leaves_a_hang_up_ignored_that_was) {
  ::signal(SIGHUP, SIG_IGN);  // as nohup does
  {
    SignalWatch watch(end_.limits(1000, 0));
    send_to_this_process(SIGHUP);
    EXPECT_EQ(end_.status(0.3), 0);
    watch.hold();
    EXPECT_FALSE(watch.asked());
  }
  EXPECT_EQ(::signal(SIGHUP, SIG_DFL), SIG_IGN);
}

TEST_F(SignalWatchTest, gives_signals_back) {
  struct sigaction action {};
  { SignalWatch watch(end_.limits(1000, 0)); }
  ::sigaction(SIGTERM, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
  {
    SignalWatch watch(end_.limits(1000, 0));
    watch.hold();
    send_to_this_process(SIGTERM);
  }
  send_to_this_process(SIGTERM);  // as mpirun does while a rank is leaving
  ::sigaction(SIGTERM, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_IGN);
  ::signal(SIGTERM, SIG_DFL);
  {
    SignalWatch watch(end_.limits(1000, 0));
    watch.hold();
    watch.agree(SIGUSR1, 1000);  // which another rank got
  }
  ::sigaction(SIGTERM, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_IGN);
}

}  // namespace
}  // namespace megalith
