// Cases of tests/kernels on the machine of simt.h; GEMMs are a library's, here gemm.cpp.
#include "tests/device/device.h"

#include "kernels/linear/device_queue.h"
#include "kernels/system/check.h"
#include "tests/simt/simt.h"

namespace megalith::test {

std::string no_device() { return ""; }
bool device_is_lost() { return false; }

double library_gelu(const Case&, Doubles&, const Arg&, int64_t, int64_t) { return 0; }

namespace {
simt::Chip simulated(const cuda::Chip& chip) {
  // As much memory as a Hopper, and no products of its warpgroups.
  constexpr simt::Chip b200{"B200", 10, 0, 227 << 10};
  for (const simt::Chip& known : {simt::a100, simt::h100, simt::l4, b200})
    if (known.major == chip.generation && known.shared_memory == chip.shared_memory) return known;
  CHECK(chip.generation == 0, "the simulated GPU is no chip of generation {} with {} bytes of shared memory",
        chip.generation, chip.shared_memory);
  return simt::chip();
}
}  // namespace

// What an op only writes starts out with values, as for the CPU.
Memories on_device(const Case& c, int64_t offset, const cuda::Chip& chip) {
  simt::clear_memory();
  const simt::AsChip machine(simulated(chip));
  Memories host(c, 0);
  std::vector<Tensor> tensors;
  for (size_t a = 0; a < c.args.size(); a++) {
    const Arg& arg = c.args[a];
    if (arg.shape.num_dims() == 0) {
      tensors.emplace_back();
      continue;
    }
    const Tensor from = host.memory[a].tensor();
    const auto contents = !arg.written  ? simt::Contents::read_only
                          : arg.scratch ? simt::Contents::unwritten
                                        : simt::Contents::written;
    void* p = simt::allocate(arg.name, from.bytes(), contents, offset * size_of(arg.dtype));
    std::memcpy(p, from.raw(), static_cast<size_t>(from.bytes()));
    tensors.emplace_back(p, arg.dtype, arg.shape);
  }
  void* workspace = simt::allocate("the workspace", cuda::workspace_bytes, simt::Contents::unwritten);
  cuda::Gemm gemm;
  Stream s(
      World::cuda,
      {.stream = nullptr, .workspace = workspace, .gemm = &gemm, .chip = DeviceQueue::chip_of(device::properties())});
  c.run(s, tensors);
  for (size_t a = 0; a < c.args.size(); a++)
    if (!tensors[a].empty())
      std::memcpy(host.memory[a].tensor().raw(), tensors[a].raw(), static_cast<size_t>(tensors[a].bytes()));
  return host;
}

}  // namespace megalith::test
