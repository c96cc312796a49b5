// Runs the real program, alone or under mpirun, and looks at what a user would see: exit status, output, time.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace megalith::e2e {

double now();  // seconds, steady
void sleep_for(double seconds);

using Args = std::vector<std::string>;

struct Result {
  int status = 0;  // exit status, or 128 + the signal that ended it
  bool timed_out = false;
  std::string out, err;
  double seconds = 0;

  // The whole story, for a failed expectation.
  std::string text() const;
};

// A process that was started and, with it, all that it starts. Output goes to files beside `folder`/NAME.out and .err,
// so that it survives a kill. A Process that goes out of scope while running is killed, with its descendants.
class Process {
 public:
  // Runs in `folder`. `shell_prefix`: commands for `sh` before the program takes the shell's place, such as "ulimit -n
  // 9".
  Process(const Args& command, const std::string& folder, const std::string& shell_prefix = "");
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  // Waits; after `timeout` seconds everything is killed and timed_out set.
  Result wait(double timeout = 120);
  // SIGKILL to it and everything that descends from it; returns when all of them are gone.
  Result kill_all();
  std::string out() const;  // so far
  double seconds() const { return now() - start_; }

  // The ranks: processes of the program under test that descend from this process.
  static std::vector<pid_t> ranks();
  // Whether all of them end within so many seconds; mpirun does not wait for those that it has ended.
  static bool ranks_end(double seconds);

 private:
  Result finish(int wait_status, bool timed_out);
  pid_t pid_ = -1;
  int wait_status_ = 0;
  std::string out_path_, err_path_;
  double start_;
};

// Returns what the environment says of a file or folder, for tests that were moved to another machine; else where the
// build has it. MEGALITH_PROGRAM, MEGALITH_MPIRUN, MEGALITH_REFERENCE.
std::string place(const char* name, const std::string& built);

Args megalith(const Args& args);           // the program alone
Args mpirun(int ranks, const Args& args);  // under mpirun; also for one rank
Args mpirun(int ranks, const std::string& program, const Args& args);

// So many ranks of a job, started with the same.
struct Part {
  int ranks;
  Args args;
  std::string program = MEGALITH_PROGRAM;
  std::string folder = ".";
};
// The parts' ranks in order. Each rank becomes its part by a shell: Open MPI 5.0.7, which Debian 13 has, dies of a
// command line that names several programs. No word may hold a quote.
Args mpirun(const std::vector<Part>& parts);

Result run(const Args& command, const std::string& folder, double timeout = 120, const std::string& shell_prefix = "");

}  // namespace megalith::e2e
