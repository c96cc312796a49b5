#include "trainer/train/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "trainer/session/console.h"
#include "trainer/train/terminal.h"

namespace megalith {

ProgressBar::ProgressBar() : out_(stdout_is_terminal() ? stdout : stderr_is_terminal() ? stderr : nullptr) {}

void ProgressBar::draw(double share, const std::string& text) {
  if (!out_) return;
  const double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  if (last_ >= 0 && share < 1 && now - last_ < 0.1) return;
  last_ = now;
  drawn_ = true;
  const auto columns = static_cast<size_t>(std::max(1, terminal_columns() - 1));  // in the last, some terminals wrap
  const int width = columns < 100 ? 20 : 32;
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  const std::string line =
      fmt::format("[{:=<{}}{:<{}}] {:5.1f}%  {}", "", full, "", width - full, 100 * std::clamp(share, 0.0, 1.0), text);
  write_console(out_, "\r\033[K" + line.substr(0, columns));
}

void ProgressBar::clear() {
  if (!drawn_.exchange(false)) return;
  write_console(out_, "\r\033[K");
}

}  // namespace megalith
