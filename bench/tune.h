// The fastest of the GEMM library's kernels for the products of training steps: what `bench_kernels --tune` measures
// and kernels/gemm_table.h holds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/base/arena.h"
#include "kernels/base/stream.h"
#include "kernels/gemm_cuda.h"

namespace megalith::bench {

// The products of a step of a config, on the first and on the last of its ranks, from the dry world. 0 ranks: all
// devices of its machines, or 1.
GemmCounts products_of(const std::string& config, std::vector<std::string> overrides, int ranks);

struct TunedProduct {
  GemmShape shape;
  double first = 0, tuned = 0;  // seconds, with what the shape has beside its product
  std::vector<GemmChoice> choices;
  std::string why;  // there is none
};

class Tuner {
 public:
  using Works = std::vector<std::function<void()>>;

  // All on one GPU, whose queue `stream` has. `seconds` measures works that do the same on different memory;
  // `cold_bytes` of it, so that no cache holds what a step would have to fetch.
  Tuner(Stream& stream, Arena& arena, std::function<double(const Works&)> seconds, int64_t cold_bytes, int candidates)
      : stream_(stream),
        arena_(arena),
        gemm_(*stream.queue().gemm),
        seconds_(std::move(seconds)),
        cold_bytes_(cold_bytes),
        most_(candidates) {}

  // Of a bias gradient and of a GELU's the product is timed with them and without, and these alone: the entry with them
  // is there only where it is the faster way.
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
