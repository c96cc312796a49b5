#include "tests/end_to_end/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace megalith::e2e {
namespace {

// Also of a file in /proc, which has no size; of one that is not there, nothing.
std::string slurp(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(bytes).str();
}

struct Entry {
  std::string name;
  char state = '?';
  pid_t parent = 0;
};

// Reads what /proc/PID/stat says of every process.
std::map<pid_t, Entry> processes() {
  std::map<pid_t, Entry> all;
  DIR* proc = ::opendir("/proc");
  if (!proc) throw std::runtime_error("cannot list /proc");
  while (const dirent* d = ::readdir(proc)) {
    const pid_t pid = std::atoi(d->d_name);
    if (pid <= 0) continue;
    const std::string stat = slurp(fmt::format("/proc/{}/stat", pid));
    const size_t open = stat.find('('), close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close + 4 > stat.size()) continue;
    all[pid] = {stat.substr(open + 1, close - open - 1), stat[close + 2], std::atoi(stat.c_str() + close + 4)};
  }
  ::closedir(proc);
  return all;
}

// Living processes below this one. It adopts orphans (see Process), so nothing can hide.
std::vector<std::pair<pid_t, std::string>> descendants() {
  const std::map<pid_t, Entry> all = processes();
  std::vector<std::pair<pid_t, std::string>> mine;
  for (const auto& [pid, entry] : all) {
    if (entry.state == 'Z' || entry.state == 'X') continue;
    for (pid_t p = entry.parent; p > 1; p = all.contains(p) ? all.at(p).parent : 0)
      if (p == ::getpid()) {
        mine.emplace_back(pid, entry.name);
        break;
      }
  }
  return mine;
}

}  // namespace

std::string Result::text() const {
  return fmt::format("status {}{} after {:.2f} s\n--- stdout\n{}--- stderr\n{}---", status,
                     timed_out ? " (timed out)" : "", seconds, out, err);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

Process::Process(const Args& command, const std::string& folder, const std::string& shell_prefix) : start_(now()) {
  static int count = 0;
  const std::string name = fmt::format("{}.{}", folder, count++);
  out_path_ = name + ".out";
  err_path_ = name + ".err";
  Args line = command;
  if (!shell_prefix.empty()) {
    line = {"/bin/sh", "-c", shell_prefix + "; exec \"$@\"", "sh"};
    line.insert(line.end(), command.begin(), command.end());
  }
  std::vector<char*> argv;
  for (std::string& word : line) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // ranks whose mpirun is gone become children of ours
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("cannot fork");
  if (pid_ == 0) {
    ::setsid();
    ::signal(SIGHUP, SIG_DFL);  // nohup, under which tests may run, has it ignored
    const int out = ::open(out_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    const int err = ::open(err_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    const int null = ::open("/dev/null", O_RDONLY);
    if (::dup2(null, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0 || ::chdir(folder.c_str()) != 0) ::_exit(126);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    ::setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
    // oneDNN writes its code when a process first multiplies: 45 ms for AVX-512 and 20 for AVX2.
    ::setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 0);
    // What Open MPI says on standard error of a chroot without /sys, or of networks that ranks of one machine do not
    // need, is not the program's; and libraries of such networks take long to find that there is none: libfabric (ofi)
    // a second, two of PSM, opened only to choose a pml, a tenth each. UCX, which comes with Open MPI 5, takes 40 ms to
    // see to it that it is told of changes of memory, and 15 to load what it knows of networks (uct).
    ::setenv("HWLOC_HIDE_ERRORS", "2", 1);
    ::setenv("OMPI_MCA_btl", "^tcp,ofi,uct", 1);
    ::setenv("OMPI_MCA_pml", "ob1", 1);
    ::setenv("UCX_MEM_EVENTS", "n", 1);
    // Ranks that mpirun has told to end, it ends at once, and not after a second or two.
    ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1);
    ::setenv("PRTE_MCA_odls_base_sigkill_timeout", "0", 1);
    ::setenv("ASAN_OPTIONS", "detect_leaks=0", 0);  // Open MPI's, in a build with sanitizers
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
}

Process::~Process() {
  if (pid_ > 0) kill_all();
}

bool Process::running() {
  if (pid_ <= 0) return false;
  const pid_t done = ::waitpid(pid_, &wait_status_, WNOHANG);
  if (done == 0) return true;
  pid_ = -1;
  return false;
}

Result Process::finish(int wait_status, bool timed_out) {
  pid_ = -1;
  return {.status = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status),
          .timed_out = timed_out,
          .out = slurp(out_path_),
          .err = slurp(err_path_),
          .seconds = now() - start_};
}

Result Process::wait(double timeout) {
  const double end = now() + timeout;
  while (running()) {
    if (now() > end) {
      Result result = kill_all();
      result.timed_out = true;
      return result;
    }
    sleep_for(0.003);
  }
  return finish(wait_status_, false);
}

Result Process::kill_all() {
  const pid_t child = pid_;
  if (child > 0) ::kill(child, SIGKILL);
  for (;;) {
    const auto living = descendants();
    for (const auto& [pid, name] : living) ::kill(pid, SIGKILL);
    int status = 0;
    pid_t done;
    while ((done = ::waitpid(-1, &status, WNOHANG)) > 0)
      if (done == child) wait_status_ = status;
    // A process that has died keeps its files until its last thread is out of the system, which may be at the disk.
    if (living.empty() && done < 0) break;
    sleep_for(0.001);
  }
  return finish(wait_status_, false);
}

std::string Process::out() const { return slurp(out_path_); }

std::vector<pid_t> Process::ranks() {
  std::vector<pid_t> found;
  for (const auto& [pid, name] : descendants())
    if (name == "megalith") found.push_back(pid);
  return found;
}

bool Process::ranks_end(double seconds) {
  for (const double end = now() + seconds; !ranks().empty(); sleep_for(0.005))
    if (now() > end) return false;
  return true;
}

std::string place(const char* name, const std::string& built) {
  const char* elsewhere = std::getenv(name);
  return elsewhere ? elsewhere : built;
}

Args megalith(const Args& args) {
  Args command{place("MEGALITH_PROGRAM", MEGALITH_PROGRAM)};
  command.insert(command.end(), args.begin(), args.end());
  return command;
}

namespace {
Args on_ranks(int ranks, const Args& program) {
  Args command{
      place("MEGALITH_MPIRUN", MEGALITH_MPIRUN), "--oversubscribe", "--bind-to", "none", "-n", std::to_string(ranks)};
  command.insert(command.end(), program.begin(), program.end());
  return command;
}
}  // namespace

Args mpirun(int ranks, const Args& args) { return on_ranks(ranks, megalith(args)); }

Args mpirun(int ranks, const std::string& program, const Args& args) {
  Args command{program};
  command.insert(command.end(), args.begin(), args.end());
  return on_ranks(ranks, command);
}

Args mpirun(const std::vector<Part>& parts) {
  std::string script;
  int ranks = 0;
  for (const Part& part : parts) {
    ranks += part.ranks;
    script += fmt::format("[ $OMPI_COMM_WORLD_RANK -ge {} ] || {{ cd '{}'; exec '{}' '{}'; }}\n", ranks, part.folder,
                          part.program, fmt::join(part.args, "' '"));
  }
  return on_ranks(ranks, {"/bin/sh", "-c", script});
}

Result run(const Args& command, const std::string& folder, double timeout, const std::string& shell_prefix) {
  return Process(command, folder, shell_prefix).wait(timeout);
}

}  // namespace megalith::e2e
