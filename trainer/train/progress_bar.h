// A progress bar on the last line of a terminal. Where standard error is not a terminal it draws nothing.
#pragma once

#include <string>

namespace megalith {

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Share in [0, 1]; the text follows the bar. Draws at most ten times a second, and always at the end.
  void draw(double share, const std::string& text);
  // Removes the bar, so that a line can be printed in its place.
  void clear();

 private:
  bool terminal_;
  bool drawn_ = false;
  double last_ = -1;  // seconds
};

}  // namespace megalith
