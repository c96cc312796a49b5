#include "trainer/planner/op_time.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/hopper_grid.h"
#include "kernels/linear/gemm_cpu.h"
#include "kernels/loops/loops_cpu.h"

namespace megalith {

namespace {

struct Tile {
  int64_t m, n;
  double rate;  // relative to that of the best tile
};
constexpr Tile tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.84}, {128, 64, 0.79}, {64, 128, 0.79}};
constexpr int64_t splits[] = {1, 2, 4, 8};  // splits of the inner dimension
constexpr double wave_power = 0.46;         // exponent: cost of an idle part of the last wave
constexpr double ramp = 176;                // inner dimension at which half of the time is start and end
constexpr double attention_ramp = 1080;     // positions at which attention has half of its best rate
constexpr double small_heads = 0.92;        // rate of attention with heads of 64 features or fewer
constexpr double unfused_gemm = 0.45;       // rate of unfused attention's products relative to a GEMM's
constexpr double odd_heads = 0.12;          // the rate's factor for a head size that is not a multiple of 8
constexpr double fused_softmax_bytes = 31, unfused_bytes = 61;  // memory traffic a score, forward and backward

int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

// Returns the busiest thread's work over an even share, for equal parts that are assigned in advance.
double busiest_of(int64_t parts, int64_t threads) {
  if (parts == 0) return 1;
  return static_cast<double>(blocks(parts, threads) * threads) / static_cast<double>(parts);
}

bool in_library_tiles(const Cost& cost, const Processor& processor) {
  return processor.library_tiles && !cost.f32 && !cost.fp8;
}

// As above for a product's tiles: each idle thread takes the next one.
double busiest_of_tiles(const Cost& cost, const Processor& processor) {
  const int64_t threads = processor.multiprocessors;
  if (threads == 1 || in_library_tiles(cost, processor) || cost.m * cost.n == 0) return 1;
  const cpu::GemmTiles cut(cost.m, cost.n);
  std::vector<int64_t> work(static_cast<size_t>(threads));
  for (int64_t i = 0; i < cut.count(); i++) *std::ranges::min_element(work) += cut[i].rows * cut[i].cols;
  return static_cast<double>(std::ranges::max(work) * threads) / static_cast<double>(cost.m * cost.n);
}

// Returns how many loops of the op a CPU's threads share.
int forks(const Cost& cost, const Processor& processor) {
  if (processor.multiprocessors == 1) return 0;
  const auto large = [](double operations) { return operations >= cpu::fork_threshold ? 1 : 0; };
  const double product = 2.0 * static_cast<double>(cost.m * cost.n * cost.k);
  const auto shared = [&] {
    return in_library_tiles(cost, processor) || cpu::GemmTiles(cost.m, cost.n).count() > 1 ? 1 : 0;
  };
  switch (cost.kind) {
    case Cost::Kind::gemm:  // a bias is added in the tiles
      return shared() + large(cost.flops - product - static_cast<double>(cost.m * cost.n));
    case Cost::Kind::gemm_add: return shared() + large(cost.flops - product);
    case Cost::Kind::attention: return cost.m > 1 ? 1 : 0;
    case Cost::Kind::input: return 0;
    default: return large(std::max(cost.flops, cost.bytes / 4));
  }
}

double gemm_time(const Cost& cost, const Processor& processor, const Hardware& hardware) {
  const double peak = cost.fp8 ? processor.peak_fp8 : cost.f32 ? processor.peak_f32 : processor.peak;
  const double rate = peak * hardware.calibrated.gemm;
  if (hardware.device.kind == DeviceKind::cpu) return cost.flops / rate * busiest_of_tiles(cost, processor);
  double best = 0;
  for (const Tile& tile : tiles)
    for (const int64_t split : splits) {
      const auto inner = static_cast<double>(cost.k) / static_cast<double>(split);
      const int64_t count = blocks(cost.m, tile.m) * blocks(cost.n, tile.n) * split;
      const double waves = static_cast<double>(count) / static_cast<double>(processor.multiprocessors);
      const double padded = 2.0 * static_cast<double>(count * tile.m * tile.n) * inner;
      const double reached = rate * tile.rate * std::pow(waves / std::ceil(waves), wave_power);
      const double time = padded / reached * (1 + ramp / inner);
      if (best == 0 || time < best) best = time;
    }
  return best;
}

// Returns the time of Megalith's attention on Hopper: that of an H100, whose GEMMs have a peak of 989.4 TFLOP/s, scaled
// to this one's.
double hopper_attention_time(const Cost& cost, const Processor& processor, const Hardware& hardware) {
  namespace model = cuda::attention;
  const double us = 1e-6 * 989.4e12 / processor.peak;
  const model::AttentionShape shape{.heads = cost.m, .shared_heads = cost.shared, .positions = cost.n, .size = cost.k};
  if (!cost.backward) return us * model::forward_us(shape);
  const double rounded = static_cast<double>(cost.m * cost.n * cost.k) * (4 + 2);  // bytes: dq in f32 and in 16 bits
  return us * model::backward_visit_us(cost.k) * model::backward_visits(shape, model::backward_grid(shape).apart) +
         rounded / (processor.bandwidth * hardware.calibrated.memory);
}

double attention_time(const Cost& cost, const Processor& processor, const Hardware& hardware) {
  const double gemm_rate = processor.peak * hardware.calibrated.gemm;
  const auto s = static_cast<double>(cost.n);
  if (hardware.device.kind == DeviceKind::cpu)
    return cost.flops / (gemm_rate * hardware.stack.attention_share) * busiest_of(cost.m, processor.multiprocessors);
  const AttentionKernel kernel = hardware.stack.attention;
  if (kernel == AttentionKernel::own && hardware.device.generation == 9 && !cost.f32 &&
      cuda::attention::has_tiles(cost.k))
    return hopper_attention_time(cost, processor, hardware);
  if (kernel == AttentionKernel::own || kernel == AttentionKernel::fused) {
    const double heads = cost.k <= 64 ? small_heads : 1;
    return cost.flops / (gemm_rate * hardware.stack.attention_share * heads * s / (s + attention_ramp));
  }
  // An unfused kernel computes both halves of the square and moves the scores through memory. Backward has 5 of the 7
  // products.
  const double full = 2 * cost.flops, rate = gemm_rate * unfused_gemm * (cost.k % 8 == 0 ? 1 : odd_heads);
  const double scores = static_cast<double>(cost.m) * s * s;
  const double products = full / (2 * scores * static_cast<double>(cost.k));
  const double bytes = kernel == AttentionKernel::unfused ? unfused_bytes : fused_softmax_bytes;
  return full / rate + products / 7 * bytes * scores / (processor.bandwidth * hardware.calibrated.memory);
}

double alone(const Cost& cost, const Processor& processor, const Hardware& hardware) {
  const double through_memory = cost.bytes / (processor.bandwidth * hardware.calibrated.memory);
  switch (cost.kind) {
    case Cost::Kind::gemm: return std::max(through_memory, gemm_time(cost, processor, hardware));
    case Cost::Kind::gemm_add:
      return std::max(through_memory, gemm_time(cost, processor, hardware)) +
             hardware.stack.accumulate_bytes * static_cast<double>(cost.m * cost.n) /
                 (processor.bandwidth * hardware.calibrated.memory);
    case Cost::Kind::attention: return std::max(through_memory, attention_time(cost, processor, hardware));
    case Cost::Kind::update: return through_memory;
    default: return through_memory * hardware.stack.elementwise;
  }
}

}  // namespace

Processor processor_of(const Hardware& hardware, ComputeType compute, int ranks_per_node) {
  const DeviceProfile& device = hardware.device;
  const double devices = ranks_per_node > 0 ? std::min(1.0, static_cast<double>(device.per_node) / ranks_per_node) : 1;
  const double peak = compute == ComputeType::bf16   ? device.bf16
                      : compute == ComputeType::fp16 ? device.fp16
                                                     : device.fp32;
  const bool cpu = device.kind == DeviceKind::cpu;
  const double threads = std::max(1.0, std::round(devices * static_cast<double>(device.multiprocessors)));
  return {.peak = devices * peak * 1e12,
          .peak_f32 = devices * device.fp32 * 1e12,
          .peak_fp8 = devices * (cpu ? device.fp32 : device.fp8) * 1e12,
          .bandwidth = devices * device.bandwidth * 1e9,
          .multiprocessors = cpu ? static_cast<int64_t>(threads) : device.multiprocessors,
          .library_tiles = cpu && compute == ComputeType::bf16 && device.bf16 > device.fp32};
}

double op_time(const Cost& cost, const Processor& processor, const Hardware& hardware) {
  const double time = alone(cost, processor, hardware);
  if (hardware.device.kind != DeviceKind::cpu) return time;
  return time + forks(cost, processor) * hardware.calibrated.fork * 1e-6;
}

}  // namespace megalith
