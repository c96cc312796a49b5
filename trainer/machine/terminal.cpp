#include "trainer/machine/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "trainer/machine/console.h"

namespace megalith {

namespace {

// Holds /proc/PID/stat: "PID (NAME) STATE PARENT ...", where the name may hold anything.
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

// Returns the launcher among this process's parents, or the `megalith run` that forwards its standard error; 0: none.
long find_launcher() {
  static const std::set<std::string> names = {"mpirun", "mpiexec", "orterun", "prterun", "orted", "prted", "prte"};
  for (long pid = ::getppid(); pid > 1;) {
    const Process above = process(pid);
    if (names.contains(above.name)) return process(above.parent).name == process(::getpid()).name ? above.parent : pid;
    pid = above.parent;
  }
  return 0;
}
long launcher() {
  static const long found = find_launcher();
  return found;
}

// Returns the terminal that an output of the launcher goes to, or "".
std::string launcher_terminal(int descriptor) {
  std::error_code error;
  const std::string opened =
      std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", launcher(), descriptor), error).string();
  return !error && (opened.starts_with("/dev/pts/") || opened.starts_with("/dev/tty")) ? opened : "";
}

bool is_terminal(int descriptor) {
  return launcher() == 0 ? ::isatty(descriptor) == 1 : !launcher_terminal(descriptor).empty();
}

int columns_of(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

bool stdin_is_terminal() { return is_terminal(STDIN_FILENO); }
bool stdout_is_terminal() { return is_terminal(STDOUT_FILENO); }
bool stderr_is_terminal() { return is_terminal(STDERR_FILENO); }

int terminal_columns() {
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    if (const int columns = columns_of(descriptor); columns > 0) return columns;
    // mpirun's pseudo-terminals have no size.
    const std::string path = launcher() == 0 ? "" : launcher_terminal(descriptor);
    const int terminal = path.empty() ? -1 : ::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (terminal < 0) continue;
    const int columns = columns_of(terminal);
    ::close(terminal);
    if (columns > 0) return columns;
  }
  const char* columns = std::getenv("COLUMNS");
  const int said = columns ? std::atoi(columns) : 0;
  return said > 0 ? said : 80;
}

void say_error(const std::string& text) {
  write_console(stderr, fmt::format("{}megalith: {}\n", stderr_is_terminal() ? "\033[K" : "", printable(text)));
}

std::string fitted(std::vector<LinePart> parts, size_t columns) {
  for (;;) {
    std::string line;
    for (const LinePart& part : parts) line += (line.empty() ? "" : "  ") + part.text;
    const auto first = std::ranges::max_element(parts, {}, &LinePart::drop_order);
    if (line.size() <= columns || first == parts.end() || first->drop_order == 0) return line;
    parts.erase(first);
  }
}

}  // namespace megalith
