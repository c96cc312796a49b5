#include "trainer/planner/verdict.h"

#include <algorithm>
#include <bit>

#include "kernels/system/counted.h"
#include "trainer/parallel/runtime.h"

namespace megalith {

namespace {

// All sizes are in GiB.
std::string line(const std::string& where, double needed, double reserved, double all) {
  const double left = all - reserved - needed;
  return fmt::format("  {}: {:.1f} GiB and {:.1f} reserved of {:.1f}: {}\n", where, needed, reserved, all,
                     left >= 0 ? fmt::format("fits, {:.1f} GiB are free", left)
                               : fmt::format("DOES NOT FIT, {:.1f} GiB are missing", -left));
}

bool leaves_node(const MeshShape& mesh, Channel channel) {
  std::vector<int> node_of(static_cast<size_t>(mesh.size()), -1);
  for (int rank = 0; rank < mesh.size(); rank++) {
    int& node = node_of[static_cast<size_t>(mesh.position(rank, channel).group)];
    if (node < 0) node = mesh.node(rank);
    if (node != mesh.node(rank)) return true;
  }
  return false;
}

std::vector<std::string> warnings_of(const Config& config, const Hardware& hardware, const MeshShape& mesh,
                                     const Prediction& prediction) {
  std::vector<std::string> warnings;
  if (mesh.tensor > 1 && hardware.node.topology == Topology::host)
    warnings.push_back(
        fmt::format("tensor-parallel sums of {} ranks go through the host, {} GB/s, and every layer waits for them; "
                    "lower parallel.tensor_parallel_degree",
                    mesh.tensor, hardware.node.link));
  if (leaves_node(mesh, Channel::tensor))
    warnings.push_back(fmt::format(
        "tensor-parallel groups of {} ranks cross the borders of nodes of {}: every layer waits for the network; make "
        "parallel.tensor_parallel_degree a divisor of the node, or let parallel.placement begin with tensor",
        mesh.tensor, mesh.ranks_per_node));
  for (Axis axis : all_axes)
    if (!std::has_single_bit(static_cast<unsigned>(mesh.extent(axis))))
      warnings.push_back(
          fmt::format("the {} axis has {} ranks, which is not a power of two: rings and trees are uneven; use {} or {}",
                      name_of(axis), mesh.extent(axis), std::bit_floor(static_cast<unsigned>(mesh.extent(axis))),
                      std::bit_ceil(static_cast<unsigned>(mesh.extent(axis)))));
  const int64_t head = config.model.size_of_head(), width = config.model.hidden / mesh.tensor;
  if (head % 16 != 0 || head > 256)
    warnings.push_back(
        fmt::format("heads have {} features; attention kernels need multiples of 16 up to 256 to avoid padding, and 64 "
                    "and 128 are fastest; change model.heads",
                    head));
  if (width % 64 != 0)
    warnings.push_back(
        fmt::format("a rank's part of the width is {}, not a multiple of 64, so that tiles of GEMMs are padded; change "
                    "model.hidden or parallel.tensor_parallel_degree",
                    width));
  const int64_t on_node = config.parallel.ranks_per_node, devices = hardware.device.per_node;
  if (on_node > devices && hardware.device.kind == DeviceKind::gpu)
    warnings.push_back(
        fmt::format("{} of a node share {}; use more of hardware.nodes, or fewer ranks, so that each has its own",
                    counted(on_node, "rank"), counted(devices, "device")));
  const double gathers = at(prediction.line.breakdowns[prediction.slowest], Account::gathers);
  constexpr double much = 0.05;
  if (gathers > much * prediction.seconds)
    warnings.push_back(fmt::format(
        "microbatches of {} are too small to hide the gathers of weights: {:.3g} s, {:.0f} % of the step; raise "
        "batch.microbatch_size, or share copies among fewer ranks by parallel.sharded_data_parallel_degree",
        counted(config.batch.microbatch_size, "sequence"), gathers, 100 * gathers / prediction.seconds));
  return warnings;
}

}  // namespace

int64_t device_bytes(const Config& config, const Hardware& hardware, const MemorySizes& memory) {
  const int64_t per_node = hardware.device.per_node;
  const int64_t ranks = std::max<int64_t>(1, (config.parallel.ranks_per_node + per_node - 1) / per_node);
  const int64_t on_host = hardware.device.kind == DeviceKind::cpu ? memory.total(MemoryPlace::host) : 0;
  return ranks *
         (memory.total(MemoryPlace::device) + on_host + (config.run.device == Device::cpu ? 0 : DeviceQueue::bytes));
}

Verdict verdict(const Config& config, const Hardware& hardware, const MeshShape& mesh,
                const std::vector<MemorySizes>& memory, const Prediction& prediction) {
  int64_t device = 0;
  std::vector<int64_t> host(static_cast<size_t>(mesh.node(mesh.size() - 1) + 1));
  for (int rank = 0; rank < mesh.size(); rank++) {
    const MemorySizes& sizes = memory[static_cast<size_t>(rank)];
    device = std::max(device, device_bytes(config, hardware, sizes));
    host[static_cast<size_t>(mesh.node(rank))] += sizes.total(MemoryPlace::host);
  }
  const double on_device = gib(device);
  const double on_host = gib(*std::ranges::max_element(host));
  Verdict v;
  v.fits = on_device + hardware.device.reserved <= hardware.device.memory && on_host <= hardware.host.memory;
  v.text = "verdict:\n" + line(fmt::format("device ({})", hardware.device.name), on_device, hardware.device.reserved,
                               hardware.device.memory);
  if (on_host > 0) v.text += line("host of a node", on_host, 0, hardware.host.memory);
  for (const std::string& warning : warnings_of(config, hardware, mesh, prediction))
    v.text += "  warning: " + warning + "\n";
  return v;
}

}  // namespace megalith
