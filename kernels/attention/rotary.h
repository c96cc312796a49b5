// Rotary positions: in a head's first 2P features, feature i and feature i + P are turned by the angle a = position *
// frequency i:  x' = x cos a - y sin a,  y' = y cos a + x sin a.  Source: Su et al., RoFormer, arXiv 2104.09864; the
// pairs are halves of the features, as in GPT-NeoX, Llama and what came after, not neighbours.
//
// A frequency is kept as turns a position, in units of 2^-64 turns: a position times it, modulo 2^64, is the angle for
// any position, exact to 2^-33 turns, where a product in f32 would lose a bit for every doubling of the position.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

struct Rotation {
  static constexpr int64_t most_pairs = 128;
  int64_t pairs = 0;             // P
  uint64_t turns[most_pairs]{};  // frequency i
};

// Llama 3's way to a longer context: frequencies whose waves are longer than original_context / low are divided by
// factor, those shorter than original_context / high stay, and those between are blended (modeling_rope_utils.py of
// transformers, _compute_llama3_parameters). A factor of 1 changes nothing.
struct RotaryScaling {
  double factor = 1, low = 1, high = 4, original_context = 8192;
};

// Frequency i is base^(-i / pairs), scaled; 1 <= pairs <= most_pairs.
Rotation make_rotation(int64_t pairs, double base, const RotaryScaling& scaling);

// Positions of the rows of a pass. Row n is at n % T; with document starts (attention.h) at n % T - starts[n]; with
// `rows` (cached_attention.h) at rows[n][1].
struct RowPositions {
  Tensor starts{}, rows{};
};

// Turns q and k by the angles of their rows; v is unchanged.
struct Rotate {
  static constexpr const char* name = "rotate";
  Tensor qkv;  // (N, (H + 2K) D), as AttentionForward takes it, in place; f32, bf16 or f16
  AttentionDims dims;
  Rotation rotation;
  RowPositions positions;
  // False: turns by the opposite angles. This is the adjoint: it maps the gradient of the turned q and k to that of q
  // and k.
  bool forward;
};

struct Turn {
  float cos, sin;
};
// Returns cosine and sine of `phase` * 2^-32 turns, to about 1e-7: Taylor series of the distance from the nearest
// quarter.
constexpr Turn turn_of(uint32_t phase) {
  const uint32_t quarter = (phase + (1u << 29)) >> 30;
  const float x = static_cast<float>(static_cast<int32_t>(phase - (quarter << 30))) * 1.46291807927e-9f;  // 2 pi / 2^32
  const float s = x * x;
  const float sine = x + x * s * (-1.0f / 6 + s * (1.0f / 120 + s * (-1.0f / 5040 + s * (1.0f / 362880))));
  const float cosine =
      1 + s * (-0.5f + s * (1.0f / 24 + s * (-1.0f / 720 + s * (1.0f / 40320 + s * (-1.0f / 3628800)))));
  const float c = quarter & 1 ? sine : cosine, d = quarter & 1 ? cosine : sine;
  return {(quarter + 1) & 2 ? -c : c, quarter & 2 ? -d : d};
}

void launch(Stream& s, const Rotate& op);
namespace cpu {
void run(Queue& queue, const Rotate& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const Rotate& op);
}  // namespace cuda

}  // namespace megalith
