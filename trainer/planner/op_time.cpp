#include "trainer/planner/op_time.h"

#include <algorithm>
#include <cmath>

namespace megalith {

namespace {

// A block of the product that one multiprocessor computes at a time, and its rate relative to the best one's.
struct Tile {
  int64_t m, n;
  double rate;
};
constexpr Tile tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.84}, {128, 64, 0.79}, {64, 128, 0.79}};
constexpr int64_t splits[] = {1, 2, 4, 8};  // of the inner dimension
constexpr double wave_power = 0.46;         // how much an idle part of the last wave costs
constexpr double ramp = 176;                // inner dimension at which half of the time is start and end
constexpr double attention_ramp = 1080;     // positions at which attention has half of its best rate
constexpr double small_heads = 0.92;        // rate of attention with heads of 64 features or fewer
constexpr double unfused_gemm = 0.45;       // rate of unfused attention's products, of a GEMM's
constexpr double odd_heads = 0.12;          // of that, where a head's size is no multiple of 8
constexpr double fused_softmax_bytes = 31, unfused_bytes = 61;  // of memory traffic a score, forward and backward

int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

double gemm_time(const Cost& cost, const Processor& processor, const Hardware& hardware) {
  const double rate = processor.peak * hardware.calibrated.gemm;
  if (hardware.device.kind == DeviceKind::cpu) return cost.flops / rate;
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

double attention_time(const Cost& cost, const Processor& processor, const Hardware& hardware) {
  const double gemm_rate = processor.peak * hardware.calibrated.gemm;
  const auto s = static_cast<double>(cost.n);
  if (hardware.device.kind == DeviceKind::cpu) return cost.flops / (gemm_rate * hardware.stack.attention_share);
  if (hardware.stack.attention == AttentionKernel::fused) {
    const double heads = cost.k <= 64 ? small_heads : 1;
    return cost.flops / (gemm_rate * hardware.stack.attention_share * heads * s / (s + attention_ramp));
  }
  // Both halves of the square, and the scores through memory; backward has 5 of the 7 products.
  const double full = 2 * cost.flops, rate = gemm_rate * unfused_gemm * (cost.k % 8 == 0 ? 1 : odd_heads);
  const double scores = static_cast<double>(cost.m) * s * s;
  const double products = full / (2 * scores * static_cast<double>(cost.k));
  const double bytes = hardware.stack.attention == AttentionKernel::unfused ? unfused_bytes : fused_softmax_bytes;
  return full / rate + products / 7 * bytes * scores / (processor.bandwidth * hardware.calibrated.memory);
}

}  // namespace

Processor processor_of(const Hardware& hardware, ComputeType compute, int ranks_per_node) {
  const DeviceProfile& device = hardware.device;
  const double devices = ranks_per_node > 0 ? std::min(1.0, static_cast<double>(device.per_node) / ranks_per_node) : 1;
  const double peak = compute == ComputeType::bf16   ? device.bf16
                      : compute == ComputeType::fp16 ? device.fp16
                                                     : device.fp32;
  return {.peak = devices * peak * 1e12,
          .bandwidth = devices * device.bandwidth * 1e9,
          .multiprocessors = device.multiprocessors};
}

double op_time(const Cost& cost, const Processor& processor, const Hardware& hardware) {
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

}  // namespace megalith
