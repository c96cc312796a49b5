// Talks with somebody at a terminal, or with a pipe: lines come from standard input, and Ctrl-C ends what is being
// written and not the program.
//
// While a Dialogue lives, SIGINT and SIGUSR1 (in whose place `megalith run` passes on a Ctrl-C) run no handler, which
// no thread that computes may do (session/signal_watch.h). So it is made before threads of kernels are. Whoever reads
// or writes asks whether one has come.
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

  // Returns whether somebody types and reads: standard input and standard output are a terminal.
  bool with_somebody() const { return with_somebody_; }

  // Returns the next line without its end, after `prompt`, which only a terminal shows; nothing at the end of the
  // input. A Ctrl-C drops what was typed: the prompt comes again, with `after_ctrl_c` before it. Of a pipe it is the
  // end.
  std::optional<std::string> read_line(std::string_view prompt, std::string_view after_ctrl_c);

  // Returns whether a Ctrl-C has come since it was last asked.
  bool interrupted();

  // Writes to standard output at once.
  void write(std::string_view text);
  // Writes a line about the dialogue itself: to the terminal, where it is dim, else to standard error.
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
