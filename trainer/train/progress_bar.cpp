#include "trainer/train/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace megalith {

ProgressBar::ProgressBar() : terminal_(isatty(STDERR_FILENO) == 1) {}

void ProgressBar::draw(double share, const std::string& text) {
  if (!terminal_) return;
  const double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  if (drawn_ && share < 1 && now - last_ < 0.1) return;
  last_ = now;
  drawn_ = true;
  constexpr int width = 32;
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  fmt::print(stderr, "\r\033[K[{}{}] {:5.1f}%  {}", std::string(static_cast<size_t>(full), '='),
             std::string(static_cast<size_t>(width - full), ' '), 100 * share, text);
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (!drawn_) return;
  drawn_ = false;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

}  // namespace megalith
