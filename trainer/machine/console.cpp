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
  // Text left in the buffer would make every later write fail, also at exit.
  ::__fpurge(out);
  std::clearerr(out);
  int none = 0;
  outputs[out == stderr].error.compare_exchange_strong(none, error == 0 ? EIO : error);
}

std::string printable(std::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); i++) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are C2 80 to C2 9F.
    const bool is_c1 = byte == 0xc2 && i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f)
      shown += fmt::format("\\x{:02x}", byte);
    else if (is_c1)
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
    else
      shown += text[i];
  }
  return shown;
}

std::string standard_output_error() {
  const int error = outputs[0].error;
  return error == 0 ? "" : std::strerror(error);
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
