#include "trainer/session/machine.h"

#include <omp.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace megalith {

int use_threads(int ranks_on_this_node) {
  if (std::getenv("OMP_NUM_THREADS")) return omp_get_max_threads();
  const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const int threads = std::clamp(cores / std::max(1, ranks_on_this_node), 1, omp_get_num_procs());
  omp_set_num_threads(threads);
  return threads;
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

std::string machine_id() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  std::string start;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), start);
  return name + (" " + start);
}

}  // namespace megalith
