#include "trainer/session/signal_watch.h"

#include <fmt/format.h>
#include <semaphore.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "trainer/session/launch.h"
#include "trainer/session/launch_line.h"

namespace megalith {

namespace {

constexpr std::array<int, 5> watched_signals{SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
constexpr double repeats_within = 1;  // seconds in which signals after the first count as its repetition
constexpr double launcher_every = 0.2, time_every = 0.02;  // seconds between checks

// The launcher, if any. Determined before main(), so that its death before a watch begins is noticed too.
const pid_t first_parent = ::getppid();

// The handler, which must not use anything else, leaves these for the thread.
struct Received {
  std::atomic<int64_t> at{0};  // nanoseconds, when the first came; 0: none yet
  std::atomic<int> sender{0}, signal{0};
  std::atomic<int> again{0};  // a later one
  sem_t news{};
};
Received received;
std::array<struct sigaction, watched_signals.size()> actions_before;

int64_t nanoseconds_now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
double seconds_now() { return static_cast<double>(nanoseconds_now()) / 1e9; }

void note(int signal, pid_t sender) {
  const int64_t now = nanoseconds_now();
  int64_t first = 0;
  if (received.at.compare_exchange_strong(first, now)) {
    received.sender = sender;
    received.signal = signal;
  } else if (signal != SIGHUP && signal != launcher_gone && static_cast<double>(now - first) > repeats_within * 1e9) {
    received.again = signal;
  }
}

void receive(int signal, siginfo_t* info, void*) {
  const int error = errno;
  note(signal, info->si_pid);
  ::sem_post(&received.news);
  errno = error;
}

struct Bound {
  double seconds;
  std::string words;
};

// mpirun gives its ranks this time from its SIGTERM to its SIGKILL. A part of it is reserved for a last message.
Bound bound_of_mpirun() {
  const double grace = kill_delay_of_mpirun([](const char* name) -> const char* { return std::getenv(name); });
  return {0.8 * grace,
          fmt::format("mpirun, which kills its ranks {:g} s after SIGTERM (odls_base_sigkill_timeout)", grace)};
}

}  // namespace

std::string signal_name(int signal) {
  if (signal == launcher_gone) return "the launcher's end";
  if (signal == SIGUSR1 && std::getenv(started_by_run)) return "Ctrl-C or another signal to `megalith run`";
  const char* name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

int status_of(int signal) { return signal == launcher_gone ? 1 : 128 + signal; }

namespace {
sigset_t watched_set() {
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : watched_signals) ::sigaddset(&set, signal);
  return set;
}
}  // namespace

Uninterrupted::Uninterrupted() {
  const sigset_t set = watched_set();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}
Uninterrupted::~Uninterrupted() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

SignalWatch::SignalWatch(Limits limits)
    : limits_(std::move(limits)),
      has_launcher_(!launch_of_this_process().launcher.empty()),
      agreed_end_(std::numeric_limits<double>::infinity()) {
  received.at = 0;
  received.signal = received.again = 0;
  ::sem_init(&received.news, 0, 0);
  struct sigaction action {};
  action.sa_sigaction = &receive;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (size_t i = 0; i < watched_signals.size(); i++) {
    ::sigaction(watched_signals[i], &action, &actions_before[i]);
    if (watched_signals[i] == SIGHUP && actions_before[i].sa_handler == SIG_IGN) ::signal(SIGHUP, SIG_IGN);
  }
  thread_ = std::thread([this] { watch(); });
}

SignalWatch::~SignalWatch() {
  stops_ = true;
  ::sem_post(&received.news);
  thread_.join();
  for (size_t i = 0; i < watched_signals.size(); i++)
    if (received.signal != 0 || agreed_ != 0)
      ::signal(watched_signals[i], SIG_IGN);
    else
      ::sigaction(watched_signals[i], &actions_before[i], nullptr);
}

void SignalWatch::hold() { holds_ = true; }

std::optional<SignalWatch::Asked> SignalWatch::asked() const {
  const int signal = received.signal;
  if (signal == 0) return {};
  Bound bound{limits_.seconds, limits_.bound};
  if (signal == SIGTERM && has_launcher_ && received.sender == first_parent &&
      launch_of_this_process().launcher == "mpirun")
    if (Bound theirs = bound_of_mpirun(); theirs.seconds < bound.seconds) bound = std::move(theirs);
  const double end = static_cast<double>(received.at) / 1e9 + bound.seconds;
  return Asked{signal, end - seconds_now(), bound.words};
}

void SignalWatch::agree(int signal, double seconds_left) {
  agreed_end_ = seconds_now() + seconds_left;
  agreed_ = signal;
}

std::optional<std::pair<int, std::string>> SignalWatch::verdict() {
  if (has_launcher_ && ::getppid() != first_parent) note(launcher_gone, 0);
  const std::optional<Asked> asked = this->asked();
  if (!asked) {
    if (agreed_ == 0 || seconds_now() <= agreed_end_) return {};
    return {{status_of(agreed_), signal_name(agreed_) + " on another rank; its time has expired"}};
  }
  const int status = status_of(asked->signal);
  const std::string name = signal_name(asked->signal);
  if (!holds_) return {{status, name}};
  if (received.again != 0) return {{status_of(received.again), name + ", and then " + signal_name(received.again)}};
  if (!std::exchange(judged_, true))
    if (const double needed = limits_.needed(); needed > asked->seconds_left)
      return {{status,
               fmt::format("{}; the step in flight and a checkpoint take {:.2g} s or more, but {:.2g} s are left by {}",
                           name, needed, asked->seconds_left, asked->bound)}};
  if (asked->seconds_left < 0 || seconds_now() > agreed_end_)
    return {{status, fmt::format("{}; the grace period set by {} has expired", name, asked->bound)}};
  return {};
}

void SignalWatch::watch() {
  const sigset_t mine = watched_set();
  ::pthread_sigmask(SIG_UNBLOCK, &mine, nullptr);
  while (!stops_) {
    const double wait = received.signal != 0 || agreed_ != 0 ? time_every : launcher_every;
    const int64_t look = nanoseconds_now() + static_cast<int64_t>(wait * 1e9);
    const timespec until{.tv_sec = look / 1'000'000'000, .tv_nsec = look % 1'000'000'000};
    ::sem_clockwait(&received.news, CLOCK_MONOTONIC, &until);  // also early, by a signal
    if (stops_) return;
    if (const auto end = verdict()) return limits_.end(end->first, end->second);
  }
}

}  // namespace megalith
