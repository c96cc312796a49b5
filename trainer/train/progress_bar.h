// A progress bar on the last line of a terminal: of standard output, between the lines there, or of standard error
// where only that is one. Elsewhere it draws nothing.
#pragma once

#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "trainer/machine/terminal.h"

namespace megalith {

// The line of a bar in so many columns: the bar gives up its length for the parts, and then they leave.
std::string bar_line(double share, const std::vector<LinePart>& parts, size_t columns);

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Share in [0, 1]; the parts follow the bar. Draws at most ten times a second, and always at the end.
  void draw(double share, const std::vector<LinePart>& parts);
  // Removes the bar, so that a line can be printed in its place. From any thread.
  void clear();

 private:
  std::FILE* out_;  // null: no terminal
  std::atomic<bool> drawn_ = false;
  double last_ = -1;  // seconds
};

}  // namespace megalith
