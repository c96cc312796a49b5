// Newton-Schulz's iteration on one whole matrix (kernels/update/muon.h), by the products of linear layers. It works on
// the Gram matrix of the shorter side, so a matrix and its transpose take the same work. Symmetric products are
// computed by panels of their lower half (kernels/elementwise/transpose.h).
#pragma once

#include "kernels/stream/arena.h"
#include "kernels/stream/stream.h"

namespace megalith {

class Orthogonalizer {
 public:
  // Allocates memory for a matrix of the type, f32 or bf16, of up to `numel` elements, the shorter side up to `side`.
  Orthogonalizer(Arena& arena, DType type, int64_t numel, int64_t side);

  // Returns where to write a matrix of this shape, which orthogonalize() uses up.
  Tensor input(int64_t rows, int64_t columns) const { return view(first_, rows, columns); }
  // Returns the orthogonalised matrix (rows, columns), in this object's memory.
  Tensor orthogonalize(Stream& s, int64_t rows, int64_t columns) const;

 private:
  static Tensor view(const Tensor& memory, int64_t rows, int64_t columns) {
    return memory.flat(0, rows * columns).view({rows, columns});
  }

  Tensor first_, second_;  // matrices, in turn; the free one holds a symmetric product's panels
  Tensor gram_, square_;   // squares of the shorter side
};

}  // namespace megalith
