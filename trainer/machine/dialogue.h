// A dialogue with a user at a terminal, or with a pipe. Lines come from standard input; Ctrl-C stops the current
// output, not the program.
//
// During the lifetime of a Dialogue, SIGINT and SIGUSR1 are blocked and polled, since threads that compute must not run
// handlers (session/signal_watch.h). `megalith run` forwards Ctrl-C as SIGUSR1. So create it before any threads of
// kernels. Readers and writers ask interrupted().
#pragma once

#include <signal.h>

#include <optional>
#include <string>
#include <string_view>

namespace megalith {

class Dialogue {
 public:
  Dialogue();
  ~Dialogue();
  Dialogue(const Dialogue&) = delete;
  Dialogue& operator=(const Dialogue&) = delete;

  // Returns whether a user is present: standard input and standard output are a terminal.
  bool with_somebody() const { return with_somebody_; }

  // Returns the next line without its end, after `prompt`, which only a terminal shows; nullopt at the end of the
  // input. Ctrl-C discards the typed text: the prompt comes again, after `after_ctrl_c`. With a pipe, Ctrl-C ends the
  // input.
  std::optional<std::string> read_line(std::string_view prompt, std::string_view after_ctrl_c);

  // Returns whether Ctrl-C was pressed since the last call.
  bool interrupted();

  // Writes to standard output at once.
  void write(std::string_view text);
  // Writes a line about the dialogue itself: dimmed on a terminal, otherwise to standard error.
  void remark(const std::string& text);

 private:
  bool colours_ = false, with_somebody_ = false;
  sigset_t before_;
  int signals_ = -1;    // a signalfd
  std::string typed_;   // read and not returned
  bool ended_ = false;  // the input
  bool asked_ = false;
};

}  // namespace megalith
