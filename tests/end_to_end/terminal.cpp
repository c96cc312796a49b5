#include "tests/end_to_end/terminal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace megalith::e2e {

bool can_make_terminals() {
  int first = -1, second = -1;
  if (::openpty(&first, &second, nullptr, nullptr, nullptr) != 0) return false;
  ::close(first);
  ::close(second);
  return true;
}

Terminal::Terminal(const Args& command, const std::string& folder, const Args& environment) {
  winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_ = ::forkpty(&master_, nullptr, nullptr, &size);
  if (pid_ < 0) throw std::runtime_error("cannot make a terminal");
  if (pid_ != 0) return;
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMP_NUM_THREADS"})
    ::setenv(name, "1", 1);
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
  ::setenv("OMPI_MCA_btl", "^tcp,ofi,uct", 1);
  ::setenv("OMPI_MCA_pml", "ob1", 1);
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
  ::setenv("HWLOC_HIDE_ERRORS", "2", 1);
  ::setenv("TERM", "xterm", 1);
  ::unsetenv("NO_COLOR");
  for (const std::string& one : environment) ::putenv(const_cast<char*>(one.c_str()));
  if (::chdir(folder.c_str()) == 0) ::execvp(argv[0], argv.data());
  ::_exit(127);
}

Terminal::~Terminal() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(master_);
}

void Terminal::type(const std::string& keys) {
  EXPECT_EQ(::write(master_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

bool Terminal::read_some(double seconds) {
  pollfd one{master_, POLLIN, 0};
  if (::poll(&one, 1, static_cast<int>(1000 * seconds)) <= 0) return true;
  std::array<char, 4096> bytes;
  const ssize_t n = ::read(master_, bytes.data(), bytes.size());
  if (n <= 0) return false;
  shown_.append(bytes.data(), static_cast<size_t>(n));
  return true;
}

std::string Terminal::wait_for(const std::string& words, double timeout) {
  const double until = now() + timeout;
  const size_t from = seen_;
  for (bool open = true;;) {
    if (const size_t at = shown_.find(words, from); at != std::string::npos) {
      seen_ = at + words.size();
      return shown_.substr(from, at - from);
    }
    if (!open || now() > until) break;
    open = read_some(0.1);
  }
  ADD_FAILURE() << "`" << words << "` did not come; the terminal shows, of all:\n" << shown_;
  return shown_.substr(from);
}

int Terminal::wait(double timeout) {
  const double until = now() + timeout;
  for (;;) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    if (now() > until) return -1;
    if (!read_some(0.1)) sleep_for(0.05);
  }
}

}  // namespace megalith::e2e
