#include "trainer/planner/inventory.h"

#include <fmt/format.h>
#include <omp.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "checkpoints/reader.h"
#include "kernels/linear/gemm_cpu.h"
#include "kernels/system/check.h"
#include "kernels/system/units.h"
#include "trainer/communication/nccl.h"
#include "trainer/machine/available_memory.h"
#include "trainer/machine/machine.h"
#include "trainer/session/mpi_session.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

int64_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  getrlimit(resource, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? Inventory::unlimited : static_cast<int64_t>(limit.rlim_cur);
}

int64_t free_in(const char* folder) {
  struct statvfs space {};
  return statvfs(folder, &space) == 0 ? static_cast<int64_t>(space.f_bavail * space.f_frsize) : 0;
}

std::vector<NetworkPort> network_ports() {
  std::vector<NetworkPort> ports;
  std::error_code none;
  for (const fs::directory_entry& device : fs::directory_iterator("/sys/class/infiniband", none))
    for (const fs::directory_entry& port : fs::directory_iterator(device.path() / "ports", none)) {
      const std::string state = first_line(port.path() / "state");  // "4: ACTIVE"
      ports.push_back({device.path().filename(), first_line(port.path() / "rate"),
                       state.substr(std::min(state.size(), state.find(' ') + 1))});
    }
  std::sort(ports.begin(), ports.end(), [](const auto& a, const auto& b) { return a.device < b.device; });
  return ports;
}

void collect_gpus(Inventory& machine) {
  int count = 0;
  try {
    count = device::count();
  } catch (const Error& e) {
    machine.cuda_error = e.what();
  }
  for (int i = 0; i < count; i++) {
    Gpu& gpu = machine.gpus.emplace_back();
    try {
      gpu.unusable = device::unusable(i);
      if (!gpu.unusable.empty()) continue;
      device::select(i);
      gpu.properties = device::properties();
    } catch (const Error& e) {
      gpu.unusable = e.what();
    }
  }
  const auto usable = [&](int i) { return machine.gpus[static_cast<size_t>(i)].unusable.empty(); };
  for (int from = 0; from < count; from++) {
    auto& row = machine.links.emplace_back();
    for (int to = 0; to < count; to++)
      row.push_back(from != to && usable(from) && usable(to) ? device::link(from, to) : device::Link::none);
  }
  try {
    machine.libraries.emplace_back("NCCL", nccl_version(NcclOptions{}.library));
  } catch (const Error& e) {
    machine.nccl_error = e.what();
  }
}

std::string size_of_memory(int64_t bytes) {
  if (bytes == Inventory::unlimited) return "unlimited";
  if (bytes < MiB) return fmt::format("{} KiB", bytes / KiB);
  if (bytes < GiB) return fmt::format("{} MiB", bytes / MiB);
  return fmt::format("{:.1f} GiB", gib(bytes));
}

const char* word(device::Link link) {
  switch (link) {
    case device::Link::nvlink: return "NVLink";
    case device::Link::peer: return "PCIe";
    default: return "host";
  }
}

}  // namespace

Inventory collect_inventory() {
  Inventory machine;
  utsname system{};
  uname(&system);
  machine.host = system.nodename;
  machine.kernel = fmt::format("{} {}", system.sysname, system.release);
  machine.processor = processor_name();
  machine.cores = omp_get_num_procs();
  machine.memory = physical_memory();
  machine.memory_limit = available_memory().limit;
  machine.shared_files = free_in("/dev/shm");
  machine.locked_limit = limit_of(RLIMIT_MEMLOCK);
  machine.open_files = limit_of(RLIMIT_NOFILE);
  machine.ports = network_ports();
  machine.libraries = {{"MPI", mpi_version()},
                       {"HDF5", hdf5_version()},
                       {"oneDNN", cpu::gemm_version()},
                       {"CPU ops for", cpu::vectors_of_ops()}};
  machine.has_cuda = device::in_build();
  if (machine.has_cuda) {
    machine.architectures = device::architectures();
    collect_gpus(machine);
  }
  return machine;
}

std::vector<std::string> problems(const Inventory& m) {
  std::vector<std::string> all;
  const auto add = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    all.push_back(fmt::format(format, std::forward<Args>(args)...));
  };
  if (!m.cuda_error.empty()) add("{}", m.cuda_error);
  if (m.has_cuda && m.cuda_error.empty() && m.gpus.empty())
    add("this build has CUDA but finds no GPU (no driver, or CUDA_VISIBLE_DEVICES hides it): runs use the CPU");
  for (const Gpu& gpu : m.gpus) {
    if (!gpu.unusable.empty()) {
      add("{}", gpu.unusable);
      continue;
    }
    const device::Properties& p = gpu.properties;
    const int64_t used = p.memory - p.free;
    if (used > 2 * GiB)
      add("GPU {}: another process uses {} of {}; nvidia-smi shows which", p.index, size_of_memory(used),
          size_of_memory(p.memory));
  }
  if (m.gpus.size() > 1 && !m.nccl_error.empty()) add("{}", m.nccl_error);
  if (m.gpus.size() > 1 && m.shared_files < GiB)
    add("/dev/shm has {} free, but NCCL needs about 0.1 GiB of it for each GPU; with Docker: --ipc=host, or "
        "--shm-size=8g",
        size_of_memory(m.shared_files));
  if (m.shared_files < 64 * MiB && m.gpus.size() <= 1)
    add("/dev/shm has {} free, but MPI needs a few MiB of it for each rank", size_of_memory(m.shared_files));
  if (!m.ports.empty() && m.locked_limit != Inventory::unlimited)
    add("a process may pin {} of memory, but network adapters need pinned buffers: ulimit -l unlimited; with Docker: "
        "--ulimit memlock=-1",
        size_of_memory(m.locked_limit));
  for (const NetworkPort& port : m.ports)
    if (port.state != "ACTIVE") add("network adapter {} is {}; NCCL ignores it", port.device, port.state);
  if (m.open_files != Inventory::unlimited && m.open_files < 1024)
    add("a process may have {} files open, but NCCL needs some for each rank of the job: ulimit -n 65536",
        m.open_files);
  return all;
}

std::string describe(const Inventory& m) {
  std::string text;
  const auto line = [&]<class... Args>(const char* what, fmt::format_string<Args...> format, Args&&... args) {
    text += fmt::format("{:<11} {}\n", what, fmt::format(format, std::forward<Args>(args)...));
  };
  line("build", "{}", m.has_cuda ? "with CUDA, code for " + m.architectures : "without CUDA");
  line("machine", "{}, {}", m.host, m.kernel);
  line("processor", "{}, {} cores", m.processor, m.cores);
  line("memory", "{}{}", size_of_memory(m.memory),
       m.memory_limit == Inventory::unlimited ? ""
                                              : ", of which this container may have " + size_of_memory(m.memory_limit));
  line("limits", "/dev/shm {} free, pinned memory {}, open files {}", size_of_memory(m.shared_files),
       size_of_memory(m.locked_limit),
       m.open_files == Inventory::unlimited ? "unlimited" : fmt::to_string(m.open_files));
  for (const NetworkPort& port : m.ports) line("network", "{}: {}, {}", port.device, port.rate, port.state);
  for (const auto& [name, version] : m.libraries) line(name.c_str(), "{}", version);
  for (const Gpu& gpu : m.gpus) {
    const device::Properties& p = gpu.properties;
    if (!gpu.unusable.empty()) continue;  // listed as a problem
    line("GPU",
         "{}: {}, compute capability {}.{}, {} of {} free, {} KiB of shared memory a block, driver for CUDA {}, "
         "runtime {}",
         p.index, p.name, p.major, p.minor, size_of_memory(p.free), size_of_memory(p.memory), p.shared_memory / KiB,
         p.driver, p.runtime);
  }
  for (size_t from = 0; from < m.links.size() && m.links.size() > 1; from++) {
    std::string row;
    for (size_t to = 0; to < m.links.size(); to++)
      row += fmt::format(" {:>6}", from == to ? "-" : word(m.links[from][to]));
    line(from == 0 ? "links" : "", "GPU {}:{}", from, row);
  }
  const std::vector<std::string> wrong = problems(m);
  text += wrong.empty() ? "\nno problems found\n" : "\nproblems that stop a run or slow it down:\n";
  for (const std::string& what : wrong) text += fmt::format("- {}\n", what);
  return text;
}

}  // namespace megalith
