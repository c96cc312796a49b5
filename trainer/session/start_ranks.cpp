#include "trainer/session/start_ranks.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "kernels/system/check.h"
#include "trainer/session/launcher_words.h"

namespace megalith {

namespace {

using Steady = std::chrono::steady_clock;
constexpr std::chrono::seconds repeated_within{1};  // signals within this time count as repetitions, as in a rank

// A file descriptor that child processes do not inherit.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {
    CHECK(fd >= 0, "cannot start the ranks: {}", std::strerror(errno));
    ::ioctl(fd, FIOCLEX);
  }
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

struct Pipe {
  std::array<int, 2> ends = [] {
    std::array<int, 2> both{-1, -1};
    CHECK(::pipe(both.data()) == 0, "cannot start the ranks: {}", std::strerror(errno));
    return both;
  }();
  Descriptor out{ends[0]}, in{ends[1]};
};

// Returns the signals to wait for: those that ask this process to end, unless ignored, and SIGCHLD.
sigset_t signals_to_hear() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) ::sigaddset(&set, signal);
  }
  ::signal(SIGCHLD, SIG_DFL);
  ::sigaddset(&set, SIGCHLD);
  return set;
}

// `input` replaces standard input, unless it is -1.
[[noreturn]] void become(const LaunchLine& line, pid_t parent, int when_it_dies, int input, int errors, int failed) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, when_it_dies);
  if (::getppid() != parent) ::_exit(1);
  for (const auto& [name, value] : line.environment) ::setenv(name.c_str(), value.c_str(), 1);
  ::signal(SIGXFSZ, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  std::vector<char*> words;
  for (const std::string& word : line.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const bool has_input = input < 0 || ::dup2(input, STDIN_FILENO) >= 0;
  if (has_input && ::dup2(errors, STDERR_FILENO) >= 0) ::execvp(words[0], words.data());
  const int error = errno;
  if (::write(failed, &error, sizeof error) < 0) ::_exit(126);
  ::_exit(127);
}

// Writes to standard error, if it has a reader.
void say(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(STDERR_FILENO, text.data() + at, text.size() - at);
    if (n < 0 && errno != EINTR) return;
    at += static_cast<size_t>(std::max<ssize_t>(n, 0));
  }
}

class StartedJob {
 public:
  StartedJob(const LaunchLine& line, int passed_on, bool talks)
      : heard_(signals_to_hear()), passed_on_(passed_on), talks_(talks) {
    if (talks) input_.emplace();
    ::sigprocmask(SIG_BLOCK, &heard_, nullptr);
    Pipe failed;
    const pid_t parent = ::getpid();
    launcher_ = ::fork();
    CHECK(launcher_ >= 0, "cannot start the ranks: {}", std::strerror(errno));
    if (launcher_ == 0)
      become(line, parent, passed_on, input_ ? input_->out.fd() : -1, errors_.in.fd(), failed.in.fd());
    errors_.in.close();
    if (input_) input_->out.close();
    failed.in.close();
    int error = 0;
    if (::read(failed.out.fd(), &error, sizeof error) > 0)
      FAIL(
          "cannot start {}: {}; install a launcher of ranks (docker/install-packages.sh has Open MPI), or put it on "
          "PATH",
          line.words.front(), std::strerror(error));
    ::signal(SIGPIPE, SIG_IGN);
  }

  int wait() {
    const Descriptor signals(::signalfd(-1, &heard_, 0));
    while (!ended_) {
      // poll() ignores a descriptor of -1.
      const int typed = input_ && input_->in.fd() >= 0 ? STDIN_FILENO : -1;
      std::array<pollfd, 3> any{{{signals.fd(), POLLIN, 0}, {errors_.out.fd(), POLLIN, 0}, {typed, POLLIN, 0}}};
      if (::poll(any.data(), any.size(), -1) < 0) continue;
      if (any[0].revents != 0) hear(signals.fd());
      if (any[1].revents != 0) pass_errors();
      if (any[2].revents != 0) pass_input();
    }
    pollfd more{errors_.out.fd(), POLLIN, 0};
    while (errors_.out.fd() >= 0 && ::poll(&more, 1, 0) > 0) pass_errors();
    say(words_.rest());
    const int status = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
    return first_ != 0 && status == 128 + passed_on_ ? 128 + first_ : status;
  }

 private:
  void hear(int signals) {
    signalfd_siginfo info{};
    if (::read(signals, &info, sizeof info) != sizeof info) return;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGCHLD) return pass_on(signal);
    int status = 0;
    // The first process of a container inherits other processes.
    for (pid_t done; (done = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (done != launcher_) continue;
      ended_ = true;
      status_ = status;
    }
  }

  void pass_on(int signal) {
    if (talks_ && signal == SIGINT) {
      ::kill(launcher_, SIGUSR1);
      return;
    }
    const Steady::time_point now = Steady::now();
    if (first_ == 0 && passed_on_ == SIGUSR1)
      say(fmt::format(
          "{}megalith: SIG{}: the ranks save after the step in flight, and end; a second signal ends them at "
          "once\n",
          ::isatty(STDERR_FILENO) ? "\n" : "", ::sigabbrev_np(signal)));
    if (first_ == 0) first_ = signal;
    if (times_ == 0 || now - counted_ > repeated_within) {
      counted_ = now;
      times_++;
    }
    ::kill(launcher_, times_ > 2 ? SIGTERM : passed_on_);
  }

  void pass_errors() {
    std::array<char, 4096> bytes;
    const ssize_t n = ::read(errors_.out.fd(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) return errors_.out.close();
    say(words_.pass({bytes.data(), static_cast<size_t>(n)}));
  }

  void pass_input() {
    std::array<char, 4096> bytes;
    const ssize_t n = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) return input_->in.close();
    for (ssize_t at = 0; at < n;) {
      const ssize_t written = ::write(input_->in.fd(), bytes.data() + at, static_cast<size_t>(n - at));
      if (written < 0 && errno != EINTR) return input_->in.close();
      at += std::max<ssize_t>(written, 0);
    }
  }

  const sigset_t heard_;
  const int passed_on_;
  const bool talks_;
  std::optional<Pipe> input_;
  Pipe errors_;
  LauncherWords words_;
  pid_t launcher_ = -1;
  bool ended_ = false;
  int status_ = 0;
  int first_ = 0, times_ = 0;  // the first signal; how many came that are not its repetition
  Steady::time_point counted_;
};

}  // namespace

int start_ranks(const LaunchLine& line, int passed_on, bool talks) { return StartedJob(line, passed_on, talks).wait(); }

}  // namespace megalith
