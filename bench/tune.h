// Finds the GEMM library's fastest kernels for training's products: `bench_kernels --tune`, kernels/gemm_table.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/linear/gemm_cuda.h"
#include "kernels/stream/arena.h"
#include "kernels/stream/stream.h"

namespace megalith::bench {

// Returns the products of a step on the config's first and last rank, from the dry world. 0 ranks: all devices, or 1.
GemmCounts products_of(const std::string& config, std::vector<std::string> overrides, int ranks);

struct TunedProduct {
  GemmShape shape;
  double first = 0, tuned = 0;  // seconds, including the shape's other work
  std::vector<GemmChoice> choices;
  std::string why;  // the reason if it is empty
};

class Tuner {
 public:
  using Works = std::vector<std::function<void()>>;

  // All on one GPU, whose queue `stream` has. `seconds` measures equal works on different memory, `cold_bytes` of it,
  // so that no cache holds what a step would have to fetch.
  Tuner(Stream& stream, Arena& arena, std::function<double(const Works&)> seconds, int64_t cold_bytes, int candidates)
      : stream_(stream),
        arena_(arena),
        gemm_(*stream.queue().gemm),
        seconds_(std::move(seconds)),
        cold_bytes_(cold_bytes),
        most_(candidates) {}

  // Times a product with a bias gradient or a GELU both fused and unfused: the fused entry exists only if it is faster.
  TunedProduct tune(const GemmShape& shape);

 private:
  struct Operands;
  Operands operands(const GemmShape& shape);
  Tensor tensor(DType type, Shape shape);
  GemmChoice fastest(const GemmShape& shape, const std::vector<Operands>& sets);
  double time(const std::vector<Operands>& sets, const std::function<void(const Operands&)>& work);

  Stream& stream_;
  Arena& arena_;
  cuda::Gemm& gemm_;
  std::function<double(const Works&)> seconds_;
  int64_t cold_bytes_;
  int most_;
  uint64_t filled_ = 0;
};

}  // namespace megalith::bench
