// Draws a progress bar on the last line of a terminal: standard output, or standard error if only that is a terminal.
// Without one it draws nothing, or writes lines to standard error: the first after two seconds, then every ten.
#pragma once

#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "kernels/system/long_work.h"
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

// Shows long work as a progress bar or in lines.
class WorkBar : public WorkDisplay {
 public:
  void begin(const std::string& what) override;
  void show(double share) override;
  void end() override { bar_.reset(); }

 private:
  std::string what_;
  std::optional<ProgressBar> bar_;
};

}  // namespace megalith
