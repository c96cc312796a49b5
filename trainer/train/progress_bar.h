// Draws a progress bar on the last line of a terminal: standard output, or standard error if only that is a terminal.
// Without one it draws nothing, or writes a line to standard error every ten seconds.
#pragma once

#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "trainer/machine/terminal.h"

namespace megalith {

// Returns the line of a bar. To fit the columns the bar gets shorter, then parts are left out.
std::string bar_line(double share, const std::vector<LinePart>& parts, size_t columns);

class ProgressBar {
 public:
  enum class WithoutTerminal { nothing, lines };
  explicit ProgressBar(WithoutTerminal without = WithoutTerminal::nothing);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws the share in [0, 1] and the parts, at most ten times a second and always at the end.
  void draw(double share, const std::vector<LinePart>& parts);
  // Removes the bar. Any thread may call this.
  void clear();

 private:
  std::FILE* out_;  // null: no terminal
  bool writes_lines_;
  std::atomic<bool> drawn_ = false;
  double last_ = -1;  // seconds of the last drawing
};

}  // namespace megalith
