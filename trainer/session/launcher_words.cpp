#include "trainer/session/launcher_words.h"

#include <sstream>
#include <utility>

namespace megalith {

namespace {

constexpr size_t longest_message = 4096;  // more is none

bool is_dashes(std::string_view line) {
  return line.size() >= 40 && line.find_first_not_of('-') == std::string_view::npos;
}

bool is_of_the_launcher(std::string_view line) {
  for (const std::string_view launcher : {"mpirun: ", "prterun: ", "PRTE: "})
    if (line.starts_with(launcher.substr(0, line.size()))) return true;
  return false;
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
  const bool dashes = is_dashes(std::string_view(line).substr(0, line.size() - 1));
  if (message_.empty()) {
    if (!dashes) return is_of_the_launcher(line) && line.find(": Forwarding signal ") != std::string::npos ? "" : line;
    message_ = line;
    return "";
  }
  message_ += line;
  if (!dashes && message_.size() < longest_message) return "";
  const std::string message = std::exchange(message_, {});
  return repeats_a_rank(message) ? said_by_ranks(message) : message;
}

std::string LauncherWords::pass(std::string_view bytes) {
  std::string passed;
  for (const char c : bytes) {
    partial_ += c;
    if (c != '\n') continue;
    passed += begun_ ? partial_ : line(partial_);
    partial_.clear();
    begun_ = false;
  }
  // A bar that a rank draws has no end of line.
  const bool may_be_dashes = partial_.find_first_not_of('-') == std::string::npos;
  if (!partial_.empty() && message_.empty() && !may_be_dashes && !is_of_the_launcher(partial_)) {
    passed += std::exchange(partial_, {});
    begun_ = true;
  }
  return passed;
}

std::string LauncherWords::rest() { return std::exchange(message_, {}) + std::exchange(partial_, {}); }

}  // namespace megalith
