// Transposes, and symmetric matrices of which only the lower half is computed, by panels. Panel p has rows [p rows, (p
// + 1) rows) of the matrix, and in each row the columns up to the panel's last row. A product x x^T by panels takes (1
// + 1 / count) / 2 of the whole product's operations.
#pragma once

#include <algorithm>

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// The panels of a symmetric matrix (size, size), one after the other in memory. The last may have fewer rows.
struct Panels {
  int64_t size = 0, rows = 1;  // rows of a panel, a multiple of 32 unless there is only one panel

  constexpr int64_t count() const { return (size + rows - 1) / rows; }
  constexpr int64_t first_row(int64_t p) const { return p * rows; }
  constexpr int64_t width(int64_t p) const { return std::min((p + 1) * rows, size); }  // columns
  constexpr int64_t offset(int64_t p) const { return rows * rows * (p * (p + 1) / 2); }
  constexpr int64_t numel() const { return offset(count() - 1) + (size - first_row(count() - 1)) * size; }
};

// The panels by which a product of this type is computed. Panels with few rows cost more than skipping the other half
// saves, since such products do not fill the processor. GPUs' tensor cores (bf16) need more rows than products in f32.
constexpr Panels panels_of(int64_t size, DType type) {
  return {.size = size, .rows = std::min<int64_t>(size, type == DType::f32 ? 128 : 1024)};
}

struct Transpose {
  static constexpr const char* name = "transpose";
  Tensor y;  // (C, R), written
  Tensor x;  // (R, C); both f32 or both bf16
};

// Makes a symmetric matrix from its panels.
struct JoinPanels {
  static constexpr const char* name = "join_panels";
  Tensor y;       // (size, size), written
  Tensor panels;  // (form.numel()); both f32 or both bf16
  Panels form;
};

void launch(Stream& s, const Transpose& op);
void launch(Stream& s, const JoinPanels& op);
namespace cpu {
void run(Queue& queue, const Transpose& op);
void run(Queue& queue, const JoinPanels& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const Transpose& op);
void run(Queue queue, const JoinPanels& op);
}  // namespace cuda

}  // namespace megalith
