// Watches for requests to end a rank: SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2, and the death of its launcher. A
// separate thread checks them, so that a rank ends in time wherever its main thread is: in a long step, in a save, or
// waiting for a rank that is stuck.
//
// At most one in a process. Commands without work to save do not need it: the signals' default actions are right for
// them.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace megalith {

// Stands for a signal if the launcher is gone: mpirun was killed, or its terminal was closed.
constexpr int launcher_gone = 1000;

// Returns "SIGTERM".
std::string signal_name(int signal);
// Returns the exit status of a process that this signal has ended.
int status_of(int signal);

// During its lifetime, the signals of SignalWatch do not interrupt this thread, nor those that it starts. Threads that
// compute must not run a handler: some code of matrix products keeps values beyond the stack that it has allocated,
// where the system puts a handler's frame.
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
  // The first signal, while there is time to end.
  struct Asked {
    int signal = 0;
    double seconds_left = 0;
    std::string bound;  // source of the limit, in words
  };
  struct Limits {
    double seconds = 0;  // maximum from a signal to the end
    std::string bound;   // source of the limit, in words
    // Called once on the thread, when the first signal comes: returns the minimum seconds needed to end well.
    std::function<double()> needed;
    // Ends this process and its job with this exit status, and does not return. Called on the thread.
    std::function<void(int status, const std::string& why)> end;
  };

  // From here on a signal, or the death of the launcher, ends the process at once, by `end`. Without a launcher there
  // is no such death to notice. SIGHUP stays ignored if it was, as under nohup.
  explicit SignalWatch(Limits limits);
  // Restores the signals' default actions. If a signal has come, or was agreed upon, they are ignored instead, since
  // the process is ending: a launcher may send the same signal more than once, and another one to the remaining ranks
  // when one has ended.
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // From here on the first signal is only noted. It ends the process when its time is over or cannot suffice, or when
  // another one comes. Signals within a second of the first count as its repetition: a launcher passes on a signal that
  // each rank may have received already. SIGHUP, at any time, counts as a repetition too, since the shell, the system
  // and mpirun may each send one when a terminal is closed; so does the death of the launcher.
  //
  // After SIGTERM from Open MPI's mpirun the time is at most what mpirun leaves: it kills its ranks soon afterwards.
  void hold();

  // Call only after hold().
  std::optional<Asked> asked() const;
  // The ranks have agreed to end because of this signal, which another rank may have received: its time limit also
  // holds here.
  void agree(int signal, double seconds_left);

 private:
  void watch();
  // Returns why the process must end now, with its status; nullopt: it need not.
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
