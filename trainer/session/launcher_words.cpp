#include "trainer/session/launcher_words.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

namespace megalith {

namespace {

constexpr size_t longest_message = 4096;  // more is none

const std::array<std::string_view, 3> launcher_prefixes{"mpirun: ", "prterun: ", "PRTE: "};

bool may_be_of_the_launcher(std::string_view begin) {
  for (const std::string_view name : launcher_prefixes)
    if (begin.starts_with(name.substr(0, begin.size()))) return true;
  return begin.find_first_not_of('-') == std::string_view::npos;
}

// Where the launcher's part of a line begins, which may stand behind a bar that a rank has drawn.
size_t begin_of_dashes(std::string_view line) {
  const size_t begin = line.find_last_not_of("-\n") + 1;
  return line.size() - begin > 70 ? begin : line.size();
}
size_t begin_of_forwarding(std::string_view line) {
  for (const std::string_view name : launcher_prefixes)
    if (const size_t at = line.find(std::string(name) + "Forwarding signal "); at != std::string_view::npos) return at;
  return line.size();
}

bool repeats_a_rank(std::string_view message) {
  for (const std::string_view words : {"non-zero exit code", "exited with non-zero status", "MPI_ABORT was invoked"})
    if (message.find(words) != std::string_view::npos) return true;
  return false;
}

// Lines of ranks that have come between those of a message.
std::string said_by_ranks(const std::string& message) {
  std::string said;
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("megalith:")) said += line + "\n";
  return said;
}

}  // namespace

std::string LauncherWords::line(const std::string& line) {
  const size_t dashes = begin_of_dashes(line);
  if (message_.empty()) {
    message_ = line.substr(dashes);
    return line.substr(0, std::min(dashes, begin_of_forwarding(line)));
  }
  message_ += line;
  if (dashes > 0 && message_.size() < longest_message) return "";
  const std::string message = std::exchange(message_, {});
  return repeats_a_rank(message) ? said_by_ranks(message) : message;
}

std::string LauncherWords::pass(std::string_view bytes) {
  std::string passed;
  for (const char c : bytes) {
    partial_ += c;
    if (c == '\n') passed += line(std::exchange(partial_, {}));
  }
  if (!message_.empty()) return passed;
  // A bar has no end of line.
  size_t held = 0;
  while (!may_be_of_the_launcher(std::string_view(partial_).substr(held))) held++;
  passed += partial_.substr(0, held);
  partial_.erase(0, held);
  return passed;
}

std::string LauncherWords::rest() { return std::exchange(message_, {}) + std::exchange(partial_, {}); }

}  // namespace megalith
