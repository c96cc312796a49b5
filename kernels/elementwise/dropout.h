// Dropout: keeps an element with probability 1 - p and scales it by 1 / (1 - p). Nothing is stored for the backward
// pass: the mask is drawn again as a pure function of the key, and so does not depend on layout, microbatch or
// recompute. Source: Srivastava et al., Dropout, JMLR 15, 2014.
#pragma once

#include <cstdint>

#include "kernels/elementwise/philox.h"
#include "kernels/stream/stream.h"
#include "kernels/tensor/check_args.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// The mask of one site of the model in one step, under the Philox key made of (seed, step, site). Columns form groups
// of 64, drawn as 16 blocks of four words: element (r, c) uses word (c % 64) / 16 of the block with counter (first_row
// + r, 16 * (c / 64) + c % 16). In attention r is the query, c the key's position, and head h adds h * 2^32 to the
// second counter. An element is dropped when its word is below the threshold.
struct Dropout {
  double p = 0;  // probability of being dropped; 0 turns everything off
  uint64_t seed = 0;
  int64_t step = 0;
  int32_t site = 0;          // which dropout of the model, e.g. 3 * layer + k
  int64_t first_row = 0;     // global row (sample * T + position) of the tensor's first row
  int64_t first_column = 0;  // likewise for columns, where ranks have parts of them; only ApplyDropout reads it
  // The values that change with the microbatch, in memory of the op's device, for replayed launches (launch_graph.h):
  // (1 + sites, 2) i32, each row a 64-bit number with its low half first. Row 0 is added to first_row; row 1 + site
  // replaces seed and step as the key. Empty: the members above are complete.
  Tensor drawn{};

  bool active() const { return p > 0; }
};

inline uint64_t dropout_key(const Dropout& d) {
  const PhiloxBlock block = philox(d.seed, static_cast<uint64_t>(d.step), static_cast<uint64_t>(d.site));
  return uint64_t{block[1]} << 32 | block[0];
}
inline uint32_t dropout_threshold(const Dropout& d) { return static_cast<uint32_t>(d.p * 4294967296.0); }

// Checks an argument of op `op`. Errors name the op.
inline void expect_dropout(const char* op, const Dropout& d) {
  CHECK(d.p >= 0 && d.p < 1, "{}: dropout probability {}, expected 0 <= p < 1", op, d.p);
  if (d.drawn.empty()) return;
  expect_matrix(op, "drawn", d.drawn, DType::i32, d.drawn.rows(), 2);
  CHECK(d.site + 1 < d.drawn.rows(), "{}: drawn has {} sites, so there is no site {}", op, d.drawn.rows() - 1, d.site);
}

// Writes `drawn`, on the host, for the microbatch whose first row is d's.
void write_drawn(Tensor drawn, const Dropout& d);
constexpr uint64_t drawn_number(const int32_t* drawn, int64_t row) {
  return uint64_t{static_cast<uint32_t>(drawn[2 * row + 1])} << 32 | static_cast<uint32_t>(drawn[2 * row]);
}

// y = mask * x / (1 - p), forward and backward. GPUs draw the same masks as the CPU.
struct ApplyDropout {
  static constexpr const char* name = "dropout";
  Tensor y;  // (N, C), written; may be x's memory
  Tensor x;  // (N, C); f32, bf16 or f16
  Dropout dropout;
};

void launch(Stream& s, const ApplyDropout& op);
namespace cpu {
void run(Queue& queue, const ApplyDropout& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const ApplyDropout& op);
}  // namespace cuda

}  // namespace megalith
