#include "trainer/machine/machine.h"

#include <omp.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "kernels/system/check.h"
#include "kernels/system/counted.h"

namespace megalith {

namespace {

constexpr int most_threads = 1024;  // the OpenMP library keeps a list of them on the stack

// Reads the outermost level of OMP_NUM_THREADS, a number or a list of one per level; returns 0 if it is neither.
int threads_in(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = std::min(text.find(','), text.size());
  int threads = 0;
  if (begin == std::string::npos) return 0;
  const auto [last, error] = std::from_chars(text.data() + begin, text.data() + end, threads);
  const bool whole = text.find_first_not_of(" \t", static_cast<size_t>(last - text.data())) >= end;
  return error == std::errc() && whole && threads <= most_threads ? std::max(threads, 0) : 0;
}

rlim_t limit_on(decltype(RLIMIT_STACK) resource) {
  struct rlimit limit {};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

}  // namespace

void check_threads() {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  CHECK(!text || threads_in(text) > 0,
        "OMP_NUM_THREADS = {} is not a number of threads from 1 to {}; set one, or unset it to divide the cores among "
        "the ranks",
        text, most_threads);
}

void check_stack() {
  constexpr rlim_t least = 512 << 10;
  const rlim_t limit = limit_on(RLIMIT_STACK);
  CHECK(limit >= least,
        "the stack of this process may have {} KiB, but the program takes up to {}; raise it (ulimit -s)", limit >> 10,
        least >> 10);
}

void check_open_files() {
  constexpr rlim_t least = 32;
  const rlim_t limit = limit_on(RLIMIT_NOFILE);
  CHECK(limit >= least, "this process may have {} files open, but a training takes up to {}; raise it (ulimit -n)",
        limit, least);
}

int use_threads(int ranks_on_this_node) {
  if (std::getenv("OMP_NUM_THREADS")) return omp_get_max_threads();
  const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const int threads = std::clamp(cores / std::max(1, ranks_on_this_node), 1, omp_get_num_procs());
  omp_set_num_threads(threads);
  return threads;
}

std::string crowded_threads(int threads) {
  const int cores = omp_get_num_procs();
  if (threads <= cores) return "";
  return fmt::format(
      "OMP_NUM_THREADS = {}, but each rank may run on {} only, where its threads take turns; mpirun binds ranks to "
      "cores: start them with `megalith run` or mpirun --bind-to none, or set fewer threads",
      threads, counted(cores, "core"));
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "CPU";
}

int64_t physical_memory() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE); }

int64_t free_shared_memory() {
  struct statvfs disk {};
  return ::statvfs("/dev/shm", &disk) == 0 ? static_cast<int64_t>(disk.f_bavail * disk.f_frsize) : 0;
}

int64_t resident_memory() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::string command;
  for (std::string word; std::getline(file, word, '\0');) {
    const bool plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
      return std::isalnum(c) || std::string_view("_-./=:,+@%").find(static_cast<char>(c)) != std::string_view::npos;
    });
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    command += (command.empty() ? "" : " ") + (plain ? word : quoted + "'");
  }
  return command;
}

std::string machine_id() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  std::string start;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), start);
  return name + (" " + start);
}

}  // namespace megalith
