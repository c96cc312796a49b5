// Ctrl-C for a command that can end early with a result.
#pragma once

namespace megalith {

// While an Interrupt exists, the first SIGINT or SIGTERM is only recorded; the second ends the process as usual. One at
// a time. It must not exist where a Dialogue or a watch of signals does.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Returns the number of the signal that was received, or 0. Any thread may call this.
  int signal() const;
};

}  // namespace megalith
