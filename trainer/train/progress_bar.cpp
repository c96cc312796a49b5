#include "trainer/train/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/machine/console.h"
#include "trainer/step/step_clock.h"

namespace megalith {

namespace {

constexpr double between_drawings = 0.1, before_first_line = 2, between_lines = 10;

}  // namespace

ProgressBar::ProgressBar(WithoutTerminal without)
    : out_(stdout_is_terminal()   ? stdout
           : stderr_is_terminal() ? stderr
                                  : nullptr),
      writes_lines_(!out_ && without == WithoutTerminal::lines),
      last_(writes_lines_ ? StepClock::host_now() + before_first_line - between_lines : -1) {}

std::string bar_line(double share, const std::vector<LinePart>& parts, size_t columns) {
  constexpr size_t shortest = 10, longest = 32;
  share = std::clamp(share, 0.0, 1.0);
  const std::string percent = fmt::format("{:5.1f}%  ", 100 * share);
  const size_t around = percent.size() + 3;  // with the brackets and a blank
  const std::string text = fitted(parts, columns - std::min(columns, shortest + around));
  const size_t width = std::clamp(columns - std::min(columns, around + text.size()), shortest, longest);
  const auto full = static_cast<size_t>(share * static_cast<double>(width));
  return fmt::format("[{:=<{}}{:<{}}] {}{}", "", full, "", width - full, percent, text).substr(0, columns);
}

void ProgressBar::draw(double share, const std::vector<LinePart>& parts) {
  if (!out_ && !writes_lines_) return;
  const double time = StepClock::host_now();
  if (writes_lines_) {
    if (time - last_ < between_lines) return;
    last_ = time;
    write_console(stderr, fmt::format("{:.1f} %  {}\n", 100 * std::clamp(share, 0.0, 1.0), fitted(parts, SIZE_MAX)));
    return;
  }
  if (last_ >= 0 && share < 1 && time - last_ < between_drawings) return;
  last_ = time;
  drawn_ = true;
  // Some terminals wrap in the last column.
  const auto columns = static_cast<size_t>(std::max(1, terminal_columns() - 1));
  write_console(out_, fmt::format("\r\033[K{}\r", bar_line(share, parts, columns)));
}

void WorkBar::begin(const std::string& what) {
  what_ = what;
  bar_.emplace(ProgressBar::WithoutTerminal::lines);
}

void WorkBar::show(double share) { bar_->draw(share, {{what_}}); }

void ProgressBar::clear() {
  if (!drawn_.exchange(false)) return;
  write_console(out_, "\r\033[K");
}

}  // namespace megalith
