#include "trainer/session/launcher_words.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>
#include <utility>

namespace megalith {

namespace {

constexpr size_t longest_message = 4096;  // a longer text is not a message

const std::array<std::string_view, 3> launcher_prefixes{"mpirun: ", "prterun: ", "PRTE: "};

// Follows "[host:pid]" if the launcher could not deliver a message to a rank that has ended.
constexpr std::string_view rank_is_gone = " PMIX ERROR: PMIX_ERR_UNREACH in file ";

// Returns whether a line that begins this way may become, or is, such a remark.
bool may_say_that_a_rank_is_gone(std::string_view begin) {
  if (!begin.starts_with('[')) return false;
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const size_t end = begin.find(']');
  const std::string_view place = begin.substr(1, end == std::string_view::npos ? end : end - 1);
  if (!place.empty() && !is_word(place[0])) return false;
  for (const char c : place)
    if (!is_word(c) && std::string_view(".-_:").find(c) == std::string_view::npos) return false;
  if (end == std::string_view::npos) return true;
  const std::string_view remark = begin.substr(end + 1);
  return remark.starts_with(rank_is_gone.substr(0, remark.size()));
}

bool may_be_of_the_launcher(std::string_view begin) {
  if (may_say_that_a_rank_is_gone(begin)) return true;
  for (const std::string_view name : launcher_prefixes)
    if (begin.starts_with(name.substr(0, begin.size()))) return true;
  return begin.find_first_not_of('-') == std::string_view::npos;
}

// Returns where the launcher's part of a line begins, which may come after a bar that a rank has drawn.
size_t begin_of_dashes(std::string_view line) {
  const size_t begin = line.find_last_not_of("-\n") + 1;
  return line.size() - begin > 70 ? begin : line.size();
}
size_t begin_of_remark(std::string_view line) {
  for (const std::string_view name : launcher_prefixes)
    if (const size_t at = line.find(std::string(name) + "Forwarding signal "); at != std::string_view::npos) return at;
  for (size_t at = line.find('['); at != std::string_view::npos; at = line.find('[', at + 1))
    if (line.find(rank_is_gone, at) != std::string_view::npos && may_say_that_a_rank_is_gone(line.substr(at)))
      return at;
  return line.size();
}

bool repeats_a_rank(std::string_view message) {
  for (const std::string_view words : {"non-zero exit code", "exited with non-zero status", "MPI_ABORT was invoked"})
    if (message.find(words) != std::string_view::npos) return true;
  return false;
}

// Removes lines of ranks that came between those of a message.
std::string merge_messages(const std::string& message) {
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
    return line.substr(0, std::min(dashes, begin_of_remark(line)));
  }
  message_ += line;
  if (dashes > 0 && message_.size() < longest_message) return "";
  const std::string message = std::exchange(message_, {});
  return repeats_a_rank(message) ? merge_messages(message) : message;
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
