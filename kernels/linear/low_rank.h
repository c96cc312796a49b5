// The second matrix of a low-rank adapter (Hu et al., LoRA, arXiv 2106.09685) as a product takes it. An adapter adds
// scale * B (A x) to the output of a linear layer. If several parts of the output have an adapter each, as q, k and v
// in one matrix, a single product computes A x of all of them, so B is spread: the rows of part g are in columns [g r,
// (g + 1) r), and all other elements are 0.
#pragma once

#include <array>

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// The parts of the output that have adapters, ascending. B has their rows, one part after the other.
struct AdaptedRows {
  struct Group {
    int64_t first = 0, rows = 0;  // rows of the output
  };
  static constexpr int most = 3;
  std::array<Group, most> parts{};
  int count = 0;

  int64_t rows() const {
    int64_t sum = 0;
    for (int g = 0; g < count; g++) sum += parts[static_cast<size_t>(g)].rows;
    return sum;
  }
};

// Spreads b times `scale`; G parts. f32, bf16 or f16 throughout.
struct SpreadAdapter {
  static constexpr const char* name = "spread_adapter";
  Tensor wide;  // (O, G r), written
  Tensor b;     // (rows, r)
  AdaptedRows rows;
  double scale;
};

// The adjoint: db = scale * the blocks of dwide to which b was spread.
struct CollectAdapter {
  static constexpr const char* name = "collect_adapter";
  Tensor db;     // (rows, r) f32; written, or accumulates if `add`
  Tensor dwide;  // (O, G r) f32
  AdaptedRows rows;
  double scale;
  bool add;
};

void launch(Stream& s, const SpreadAdapter& op);
void launch(Stream& s, const CollectAdapter& op);
namespace cpu {
void run(Queue& queue, const SpreadAdapter& op);
void run(Queue& queue, const CollectAdapter& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const SpreadAdapter& op);
void run(Queue queue, const CollectAdapter& op);
}  // namespace cuda

}  // namespace megalith
