#include "trainer/machine/dialogue.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/system/check.h"
#include "trainer/machine/console.h"
#include "trainer/machine/terminal.h"

namespace megalith {

namespace {

sigset_t interrupts() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

Dialogue::Dialogue() {
  const sigset_t set = interrupts();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  signals_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  CHECK(signals_ >= 0, "cannot watch for Ctrl-C: {}", std::strerror(errno));
  with_somebody_ = stdin_is_terminal() && stdout_is_terminal();
  const char* no_colour = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  colours_ = with_somebody_ && !(no_colour && *no_colour) && !(kind && std::string_view(kind) == "dumb");
}

Dialogue::~Dialogue() {
  interrupted();
  ::close(signals_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool Dialogue::interrupted() {
  bool any = false;
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == sizeof info) any = true;
  return any;
}

void Dialogue::write(std::string_view text) { write_console(stdout, text); }

void Dialogue::remark(const std::string& text) {
  if (!with_somebody_) return write_console(stderr, text + "\n");
  write(colours_ ? fmt::format("\033[2m{}\033[0m\n", text) : text + "\n");
}

std::optional<std::string> Dialogue::read_line(std::string_view prompt, std::string_view after_ctrl_c) {
  const auto ask = [&] {
    if (with_somebody_) write(colours_ ? fmt::format("\033[1m{}\033[0m", prompt) : std::string(prompt));
  };
  // A later one came when all was written.
  if (interrupted() && !asked_) return {};
  asked_ = true;
  ask();
  for (;;) {
    if (const size_t end = typed_.find('\n'); end != std::string::npos) {
      std::string line = typed_.substr(0, end);
      typed_.erase(0, end + 1);
      if (line.ends_with('\r')) line.pop_back();
      return line;
    }
    if (ended_) {
      if (typed_.empty()) return {};
      return std::exchange(typed_, "");
    }
    std::array<pollfd, 2> any{{{STDIN_FILENO, POLLIN, 0}, {signals_, POLLIN, 0}}};
    if (::poll(any.data(), any.size(), -1) < 0) continue;
    if (any[1].revents != 0 && interrupted()) {
      if (!with_somebody_) return {};
      typed_.clear();  // as the terminal has done
      write("\n");
      if (!after_ctrl_c.empty()) remark(std::string(after_ctrl_c));
      ask();
      continue;
    }
    if (any[0].revents == 0) continue;
    std::array<char, 4096> bytes;
    const ssize_t n = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      ended_ = true;
    else
      typed_.append(bytes.data(), static_cast<size_t>(n));
  }
}

}  // namespace megalith
