// Where the elements of matrices lie in the registers of lanes and in shared memory, for the machine of simt.h and for
// the interpreter of PTX (PTX ISA, "Matrix multiply-accumulate instructions", "Asynchronous warpgroup level matrix
// instructions").
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/tensor/tensor.h"

namespace megalith::simt {

inline float value_of(bool is_f16, uint16_t bits) {
  return is_f16 ? float16::value_of(bits) : std::bit_cast<float>(uint32_t{bits} << 16);
}

// Returns what a lane gets of a tile that ldmatrix loads: two neighbours in a row, or, transposed, in a column.
inline uint32_t part_of_tile(const uint16_t (&tile)[8][8], int lane, bool transposed) {
  const int a = lane / 4, b = lane % 4 * 2;
  const uint32_t low = transposed ? tile[b][a] : tile[a][b], high = transposed ? tile[b + 1][a] : tile[a][b + 1];
  return high << 16 | low;
}

// Fragments of mma.m16n8k16. A register of a factor has two elements; `depth` is that of the first.
struct FactorPlace {
  int index, depth;  // index: the left factor's row, the right one's column
};
inline FactorPlace left_place(int lane, int r) { return {lane / 4 + r % 2 * 8, lane % 4 * 2 + r / 2 * 8}; }
inline FactorPlace right_place(int lane, int r) { return {lane / 4, lane % 4 * 2 + r * 8}; }

// The s-th sum of a thread: each of a warpgroup's warps has 16 rows, and as many columns as it has eights of sums.
struct SumPlace {
  int row, column;
};
inline SumPlace sum_place(int thread, int s) {
  const int lane = thread % 32;
  return {thread / 32 * 16 + lane / 4 + s % 4 / 2 * 8, s / 4 * 8 + lane % 4 * 2 + s % 2};
}

// The 128-byte swizzle turns bits 4 to 6 of an address over by bits 7 to 9; eight rows are 1024 bytes.
inline uint32_t swizzled(uint32_t byte) { return byte ^ (byte >> 7 & 7) << 4; }

}  // namespace megalith::simt
