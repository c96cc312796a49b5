// Watches for what asks a rank from outside to end: SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2, and a launcher that
// is gone. A thread of its own looks at them, so that a rank ends in time wherever its main thread is: in a long step,
// in a save, or waiting for a rank that is stuck.
//
// One at a time in a process. It is not needed where there is nothing to save: there the signals' own action is right.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace megalith {

// Stands for a signal where the launcher is gone: mpirun was killed, or its terminal was closed.
constexpr int launcher_gone = 1000;

// "SIGTERM".
std::string signal_name(int signal);
// The exit status of a process that it has ended.
int status_of(int signal);

// As long as it lives, the signals of SignalWatch do not interrupt this thread, nor those that it starts. No thread
// that computes may run a handler: some code of matrix products keeps values beyond the stack that it has taken, where
// the system puts a handler's frame.
class Uninterrupted {
 public:
  Uninterrupted();
  ~Uninterrupted();
  Uninterrupted(const Uninterrupted&) = delete;
  Uninterrupted& operator=(const Uninterrupted&) = delete;

 private:
  sigset_t before_;
};

class SignalWatch {
 public:
  // The first signal, while the time that it leaves runs.
  struct Asked {
    int signal = 0;
    double seconds_left = 0;
    std::string bound;  // what sets the time, in words
  };
  struct Limits {
    double seconds = 0;  // from a signal to the end, at most
    std::string bound;   // who says so, in words
    // Asked on the thread, once, when the first signal comes: seconds from then on that it takes at least to end well.
    std::function<double()> needed;
    // Ends this process and its job, with this exit status, and does not return. Called on the thread.
    std::function<void(int status, const std::string& why)> end;
  };

  // From here on a signal ends the process at once, by `end`, and so does a launcher that is gone. Where no launcher
  // started this process there is none to miss. SIGHUP stays ignored where it was, as nohup has it.
  explicit SignalWatch(Limits limits);
  // Signals have their own action again; where one has come, or was agreed upon, they are ignored, for the process is
  // ending. A launcher may send the same one more than once, and another to the ranks that are left when one has ended.
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // From here on the first signal is only noted, and ends the process when its time is over or cannot suffice, or when
  // another one comes. What comes within a second of the first is taken for the same: a launcher passes on what each
  // rank may have got already. So is SIGHUP at any time, which the shell, the system and mpirun may each send when a
  // terminal is closed, and a launcher that is gone.
  //
  // After SIGTERM from Open MPI's mpirun the time is at most what that leaves: it kills its ranks soon after.
  void hold();

  // Not before hold().
  std::optional<Asked> asked() const;
  // The ranks have agreed to end by this signal, which another rank may have got: its bound holds here as well.
  void agree(int signal, double seconds_left);

 private:
  void watch();
  // Why the process is to end now, with its status; nothing: it is not.
  std::optional<std::pair<int, std::string>> verdict();

  const Uninterrupted constructing_thread_;
  const Limits limits_;
  const bool has_launcher_;
  std::atomic<bool> holds_ = false, stops_ = false;
  std::atomic<int> agreed_{0};      // the signal
  std::atomic<double> agreed_end_;  // seconds of the steady clock
  bool judged_ = false;             // by limits_.needed
  std::thread thread_;              // the last member: it uses the others
};

}  // namespace megalith
