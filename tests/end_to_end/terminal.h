// A program at a terminal of 80 columns and 24 rows, as somebody types at it.
#pragma once

#include <sys/types.h>

#include <string>

#include "tests/end_to_end/process.h"

namespace megalith::e2e {

// Returns whether this system gives a program a terminal; a container without /dev/pts does not.
bool can_make_terminals();

class Terminal {
 public:
  // Starts the command in `folder`. `environment`: NAME=VALUE ... for the command.
  Terminal(const Args& command, const std::string& folder, const Args& environment = {});
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys);  // "\r" is Enter, "\x03" Ctrl-C, "\x04" Ctrl-D
  // Waits until the words come, behind all that was waited for before, and returns what came until then; after
  // `timeout` seconds the test fails.
  std::string wait_for(const std::string& words, double timeout = 60);
  // Waits for the end of the command. Returns its status; -1 if it does not end.
  int wait(double timeout = 60);
  const std::string& shown() const { return shown_; }

 private:
  bool read_some(double seconds);
  int master_ = -1;
  pid_t pid_ = -1;
  std::string shown_;
  size_t seen_ = 0;
};

}  // namespace megalith::e2e
