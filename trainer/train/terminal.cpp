#include "trainer/train/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace megalith {

namespace {

// "PID (NAME) STATE PARENT ..." of /proc/PID/stat; a name may hold anything.
struct Process {
  std::string name;
  long parent = 0;
};

Process process(long pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return {};
  Process found{.name = text.substr(open + 1, close - open - 1)};
  char state = 0;
  std::istringstream(text.substr(close + 1)) >> state >> found.parent;
  return found;
}

// The launcher above this process; 0: none.
long launcher() {
  static const std::set<std::string> names = {"mpirun", "mpiexec", "orterun", "prterun", "orted", "prted", "prte"};
  for (long pid = ::getppid(); pid > 1;) {
    const Process above = process(pid);
    if (names.contains(above.name)) return pid;
    pid = above.parent;
  }
  return 0;
}

bool is_terminal(int descriptor) {
  static const long above = launcher();
  if (above == 0) return ::isatty(descriptor) == 1;
  std::error_code error;
  const std::string opened =
      std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", above, descriptor), error).string();
  return !error && (opened.starts_with("/dev/pts/") || opened.starts_with("/dev/tty"));
}

}  // namespace

bool stdout_is_terminal() { return is_terminal(STDOUT_FILENO); }
bool stderr_is_terminal() { return is_terminal(STDERR_FILENO); }

int terminal_columns() {
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO})
    if (winsize size{}; ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int said = columns ? std::atoi(columns) : 0;
  return said > 0 ? said : 80;
}

}  // namespace megalith
