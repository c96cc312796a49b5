// Cases of tests/kernels on a GPU.
#include "tests/device/device.h"

#include <cmath>
#include <cstdlib>
#include <numbers>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/device_queue.h"

namespace megalith::test {

std::string no_device() { return device::count() > 0 ? "" : "no GPU here, or no driver for it"; }

bool device_is_lost() {
  try {
    device::properties();
    return false;
  } catch (const Error&) {
    return true;
  }
}

namespace {

struct Gpu {
  DeviceQueue queue;
  bool poison = false;
};
Gpu& gpu() {
  static Gpu* const one = [] {
    device::select(0);
    return new Gpu;  // for the life of the process: CUDA may be gone before static objects are
  }();
  return *one;
}

// For compute-sanitizer's initcheck, which knows only memory that nobody has written to since it was allocated.
bool leaves_uninitialized() { return std::getenv("MEGALITH_LEAVE_UNINITIALIZED") != nullptr; }

Tensor as_words(void* p, int64_t bytes) { return {p, DType::i32, {bytes / 4}}; }

}  // namespace

// As Gemm::fuses has it; elsewhere the GELU is a kernel of ours.
double library_gelu(const Case& c, Doubles& want, const Arg& arg, int64_t i, int64_t offset) {
  if (c.op != "linear_backward_input_gelu" || arg.name != "dh") return 0;
  const int generation = gpu().queue.queue().chip.generation;
  const int64_t cols = arg.shape[arg.shape.num_dims() - 1];
  if ((generation != 9 && generation != 10) || c.dtype != DType::bf16 || offset != 0 || cols % 8 != 0) return 0;
  // dh = product * ((1 + t) / 2 + h (1 - t^2) u' / 2), by t; and as bf16 rounds it.
  const auto at = static_cast<size_t>(i);
  const double h = want["h"][at], du = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * h * h);
  const double by_t = std::abs(want["product"][at]) * (0.5 + std::abs(h) * du);
  return 0x1p-11 * by_t * (1 + 0x1p-8);
}

// Memory ends with its tensor, so that compute-sanitizer sees what goes beyond.
Memories on_device(const Case& c, int64_t offset, const cuda::Chip& chip) {
  cuda::Queue queue = gpu().queue.queue();
  if (chip.generation != 0) queue.chip = chip;
  const bool uninitialized = leaves_uninitialized();
  device::Memory fresh;
  if (uninitialized) {
    fresh = device::allocate(cuda::workspace_bytes, "a workspace");
    queue.workspace = fresh.get();
  }
  Stream s(World::cuda, queue);
  Memories host(c, 0);
  std::vector<device::Memory> memory;
  std::vector<Tensor> tensors;
  for (size_t a = 0; a < c.args.size(); a++) {
    const Arg& arg = c.args[a];
    if (arg.shape.num_dims() == 0) {
      tensors.emplace_back();
      continue;
    }
    const int64_t bytes = arg.shape.numel() * size_of(arg.dtype), begin = offset * size_of(arg.dtype);
    memory.push_back(device::allocate(begin + bytes, arg.name));
    tensors.emplace_back(static_cast<char*>(memory.back().get()) + begin, arg.dtype, arg.shape);
    if (arg.scratch && uninitialized) continue;
    device::copy(queue.stream, tensors.back().raw(), host.memory[a].tensor().raw(), bytes);
  }
  if (!uninitialized) {
    // Not a number the one time, numbers the other: nothing may depend on it.
    gpu().poison = !gpu().poison;
    const double poison = gpu().poison ? -1 : 0x3f003f00;
    launch(s, Fill{.y = as_words(queue.workspace, cuda::workspace_bytes), .value = poison});
    for (size_t a = 0; a < c.args.size(); a++)
      if (c.args[a].scratch) launch(s, Fill{.y = as_words(tensors[a].raw(), tensors[a].bytes()), .value = poison});
  }

  c.run(s, tensors);

  for (size_t a = 0; a < c.args.size(); a++) {
    if (tensors[a].empty() || (c.args[a].scratch && uninitialized)) continue;
    const auto before = host.memory[a].bits();
    device::copy(queue.stream, host.memory[a].tensor().raw(), tensors[a].raw(), tensors[a].bytes());
    device::synchronize(queue.stream);
    if (!c.args[a].written) {
      EXPECT_TRUE(host.memory[a].bits() == before) << c.name() << " wrote to " << c.args[a].name;
    }
  }
  return host;
}

}  // namespace megalith::test
