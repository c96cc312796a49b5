#include "trainer/machine/console.h"

#include <fmt/format.h>
#include <stdio_ext.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace megalith {

namespace {

struct Output {
  const char* name;
  std::atomic<int> error{0};  // the first failed write's
  std::atomic<bool> told{false};
};
std::array<Output, 2> outputs{{{"standard output"}, {"standard error"}}};

}  // namespace

void ignore_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

void write_console(std::FILE* out, std::string_view text) noexcept {
  if (std::fwrite(text.data(), 1, text.size(), out) == text.size() && std::fflush(out) == 0) return;
  const int error = errno;
  // Text left in the buffer would fail every later write, and the end of the process.
  ::__fpurge(out);
  std::clearerr(out);
  int none = 0;
  outputs[out == stderr].error.compare_exchange_strong(none, error == 0 ? EIO : error);
}

std::string console_errors() {
  std::string text;
  for (Output& output : outputs)
    if (output.error != 0 && !output.told.exchange(true))
      text +=
          fmt::format("{}{} cannot be written: {}", text.empty() ? "" : "; ", output.name, std::strerror(output.error));
  return text;
}

}  // namespace megalith
