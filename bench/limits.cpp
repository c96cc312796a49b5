#include "bench/limits.h"

#include <algorithm>
#include <cmath>

#include "bench/fma_peak.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/fp8.h"
#include "kernels/linear/linear.h"

namespace megalith::bench {

namespace {
// Returns the type whose products bound the op.
DType bound_of(const std::string& op, DType dtype) {
  if (op.starts_with("fp8_product")) return DType::e4m3;
  const bool product = op.starts_with("linear") && !op.starts_with("linear_backward_bias");
  if (!product && !op.starts_with("attention")) return DType::f32;
  return dtype == DType::f16 ? DType::bf16 : dtype;
}
}  // namespace

Limits::Limits(Desk& d) {
  const bool gpu = d.world == World::cuda;
  // The library's product is not a limit on a CPU: other code can be faster.
  if (!gpu) multiply_adds = fma_peak();
  for (DType t : {DType::bf16, DType::f32}) {
    const int64_t n = !gpu ? 2048 : t == DType::bf16 ? 8192 : 4096;
    const auto scope = d.arena.scope();
    const Tensor y = d.tensor(t, {n, n}), x = d.tensor(t, {n, n}), w = d.tensor(t, {n, n});
    const Timing timing = d.time({[&] { launch(d.stream, LinearForward{.y = y, .x = x, .w = w}); }}, 0.1);
    operations[t] = std::max(multiply_adds, 2 * std::pow(static_cast<double>(n), 3) / timing.seconds);
  }
  if (gpu && device::properties().has_fp8()) {
    const int64_t n = 8192;
    const auto scope = d.arena.scope();
    const Tensor y = d.tensor(DType::bf16, {n, n}), a = d.tensor(DType::e4m3, {n, n}),
                 b = d.tensor(DType::e4m3, {n, n}), one = d.tensor(DType::f32, {1});
    const Fp8Product product{.y = y, .a = a, .b = b, .a_unscale = one, .b_unscale = one};
    const Timing timing = d.time({[&] { launch(d.stream, product); }}, 0.1);
    operations[DType::e4m3] = 2 * std::pow(static_cast<double>(n), 3) / timing.seconds;
  }
  const auto scope = d.arena.scope();
  const Shape shape{int64_t{gpu ? 512 : 128} << 20};
  const Tensor y = d.arena.tensor(DType::f32, shape), x = d.tensor(DType::f32, shape);
  const auto run = [&] {
    gpu ? device::copy(d.stream.queue().stream, y.raw(), x.raw(), x.bytes()) : launch(d.stream, Copy{.y = y, .x = x});
  };
  bytes = 2 * static_cast<double>(x.bytes()) / d.time({run}, 0.1).seconds;
}

double Limits::floor_operations(const Cost& cost, const std::string& op, DType dtype) const {
  const auto rate = operations.find(bound_of(op, dtype));
  // A CPU multiplies 8 bits in f32.
  return cost.flops / (rate != operations.end() ? rate->second : operations.at(DType::f32));
}

std::string Limits::summary() const {
  return fmt::format("{}: bf16 {:.3f} TFLOP/s, f32 {:.3f} TFLOP/s; a large copy: {:.1f} GB/s",
                     multiply_adds > 0 ? "large matrix products or multiply-adds" : "products of large matrices",
                     operations.at(DType::bf16) / 1e12, operations.at(DType::f32) / 1e12, bytes / 1e9);
}

}  // namespace megalith::bench
