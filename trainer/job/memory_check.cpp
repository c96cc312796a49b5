#include "trainer/job/memory_check.h"

#include "kernels/stream/device.h"

namespace megalith {

void check_memory(const std::vector<MemoryNeed>& runs, int ranks_on_node, int ranks_on_gpu) {
  check_node_memory(runs, ranks_on_node, available_memory());
  MemorySizes on_gpu;
  for (const MemoryNeed& run : runs)
    if (run.world == World::cuda) on_gpu += run.sizes;
  if (on_gpu.total(MemoryPlace::device) > 0) check_gpu_memory(on_gpu, ranks_on_gpu);
}

namespace {

std::string in_words(const AvailableMemory& available) {
  if (available.group.empty()) return fmt::format("which has {:.2f} GiB", gib(available.bytes));
  return fmt::format(
      "of which the control group {} has {:.2f} GiB left: its limit is {:.2f} GiB, and the system kills a process that "
      "exceeds it; raise that (docker run --memory, the job's memory request)",
      available.group, gib(available.bytes), gib(available.limit));
}

}  // namespace

void check_node_memory(const std::vector<MemoryNeed>& runs, int ranks, const AvailableMemory& available) {
  int64_t wanted = 0, copies = 0;
  std::string classes;
  for (MemoryPlace place : all_memory_places)
    for (MemoryClass c : classes_on(place)) {
      int64_t bytes = 0;
      for (const MemoryNeed& run : runs)
        if (run.world == World::cpu || place == MemoryPlace::host) bytes += run.sizes.at(c, place);
      if (bytes == 0) continue;
      wanted += bytes;
      if (c == MemoryClass::checkpoint) copies += bytes;
      classes += fmt::format("{}{}{} {:.2f}", classes.empty() ? "" : ", ", name_of(c),
                             place == MemoryPlace::host ? " on the host" : "", gib(bytes));
    }
  int64_t process = 0;
  for (const MemoryNeed& run : runs) process += run.process;
  if (process > 0) classes += fmt::format("{}process {:.2f}", classes.empty() ? "" : ", ", gib(process));
  wanted += process;
  CHECK(wanted * ranks <= available.bytes,
        "{} {:.2f} GiB on {}this machine (in GiB: {}), {}; use a smaller "
        "batch.microbatch_size, memory.activation_checkpointing = each, or more machines{}",
        runs.size() > 1 ? "both layouts together need" : "this run needs", gib(wanted),
        ranks > 1 ? fmt::format("each of {} ranks of ", ranks) : "", classes, in_words(available),
        copies > 0 ? fmt::format("; checkpoint.asynchronous = false needs {:.2f} GiB less", gib(copies)) : "");
}

void check_gpu_memory(const MemorySizes& planned, int ranks, bool queues_made) {
  const device::Properties gpu = device::properties();
  const int64_t free = gpu.free + (queues_made ? ranks * DeviceQueue::bytes : 0);
  const int64_t wanted = planned.total(MemoryPlace::device) + DeviceQueue::bytes;
  std::string classes;
  for (MemoryClass c : classes_on(MemoryPlace::device))
    classes += fmt::format("\n  {:<14}{:8.2f} GiB", name_of(c), gib(planned.at(c, MemoryPlace::device)));
  CHECK(wanted * ranks <= free,
        "this run needs {:.2f} GiB on each GPU{}, and GPU {} ({}) has {:.2f} of {:.2f} GiB free; use a smaller "
        "batch.microbatch_size, memory.activation_checkpointing = each, or more GPUs. The plan:{}\n  {:<14}{:8.2f} GiB",
        gib(wanted), ranks > 1 ? fmt::format(" for each of the {} ranks on it", ranks) : "", gpu.index, gpu.name,
        gib(free), gib(gpu.memory), classes, "workspace", gib(DeviceQueue::bytes));
}

}  // namespace megalith
