// A progress bar on the last line of a terminal: of standard output, between the lines there, or of standard error
// where only that is one. Elsewhere it draws nothing.
#pragma once

#include <atomic>
#include <cstdio>
#include <string>

namespace megalith {

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Share in [0, 1]; the text follows the bar, cut where the terminal ends. Draws at most ten times a second, and
  // always at the end.
  void draw(double share, const std::string& text);
  // Removes the bar, so that a line can be printed in its place. From any thread.
  void clear();

 private:
  std::FILE* out_;  // null: no terminal
  std::atomic<bool> drawn_ = false;
  double last_ = -1;  // seconds
};

}  // namespace megalith
