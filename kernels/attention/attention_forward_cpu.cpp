#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/attention/attention_tiles_cpu.h"
#include "kernels/loops/vector_math_cpu.h"

namespace megalith::cpu {

namespace {
// One step of the online softmax of neighbouring rows: scores become exp(score - max), and earlier sums are rescaled.
// Two rows at a time keep the processor busy while each waits for its own max.
template <int Rows>
void softmax_step(float* scores, int64_t keys, float* max, float* sum, float* out, int64_t width) {
  Vector tops[Rows], sums[Rows] = {};
  float top[Rows];
  for (int r = 0; r < Rows; r++) tops[r] = Vector{} - infinity;
  for (int64_t j = 0; j < keys; j += vector_floats)
    for (int r = 0; r < Rows; r++) {
      const Vector row = load(scores + r * key_tile + j);
      tops[r] = row > tops[r] ? row : tops[r];
    }
  for (int r = 0; r < Rows; r++) top[r] = std::max(max[r], max_of_lanes(tops[r]));
  for (int64_t j = 0; j < keys; j += vector_floats)
    for (int r = 0; r < Rows; r++) {
      float* row = scores + r * key_tile + j;
      const Vector weights = exp_of_nonpositive(load(row) - top[r]);
      store(row, weights);
      sums[r] += weights;
    }
  for (int r = 0; r < Rows; r++) {
    if (max[r] != -infinity && max[r] != top[r]) {  // before the first keys there are no sums
      const float rescale = cpu::exp(max[r] - top[r]);
      float* target = out + r * width;
#pragma omp simd
      for (int64_t c = 0; c < width; c++) target[c] *= rescale;
      sum[r] *= rescale;
    }
    sum[r] += sum_of_lanes(sums[r]);
    max[r] = top[r];
  }
}

// Memory for one head's forward pass: v as rows of `width` floats and k transposed, for all keys; q and the sums of the
// output for a tile of queries.
struct ForwardScratch {
  float *v, *k_transposed, *q, *sums;

  ForwardScratch(float* from, const HeadDims& s)
      : v(from),
        k_transposed(v + s.floats(s.T)),
        q(k_transposed + s.floats(round_up(s.T, key_tile))),
        sums(q + s.floats(query_tile)) {}
  static int64_t floats(const HeadDims& s) { return s.floats(s.T + round_up(s.T, key_tile) + 2 * query_tile); }
};

struct ForwardHead {
  HeadRows q, k, v, out;
  float* lse;
};

void forward_head(const ForwardScratch& scratch, const ForwardHead& head, const HeadDims& s,
                  const DocumentStarts& starts, const HeadDropout& dropout) {
  const auto [v, k_transposed, q, sums] = scratch;
  for (int64_t key = 0; key < s.T; key += key_tile) load_transposed(k_transposed + key * s.D, head.k, key, s);
  head.v.load(v, 0, s.T, s, 1);
  alignas(64) float scores[query_tile * key_tile], factors[key_tile];
  float max[query_tile], sum[query_tile];
  for (int64_t first = 0; first < s.T; first += query_tile) {
    const int64_t rows = std::min(query_tile, s.T - first);
    head.q.load(q, first, rows, s, s.scale());
    std::fill(max, max + rows, -infinity);
    std::fill(sum, sum + rows, 0.0f);
    const int64_t first_key = starts.of(first) / key_tile * key_tile;
    for (int64_t key = first_key; key < first + rows; key += key_tile) {
      const int64_t begin = std::max<int64_t>(0, key - first);  // the first row that sees any of these keys
      scores_of(scores + begin * key_tile, q + begin * s.width, k_transposed + key * s.D, s, first + begin,
                rows - begin, key);
      by_blocks(begin, rows, [&](int64_t block, int64_t n) {
        const int64_t keys = keys_seen(first + block + n, key), end = block + n;
        int64_t r = block;
        for (; r < end && starts.of(first + r) < key + keys; r++)
          mask(scores + r * key_tile, keys, starts, first + r, key);
        std::fill(scores + r * key_tile, scores + end * key_tile, 0.0f);  // rows that see none of these keys yet
        const int64_t seeing = r;
        for (r = block; key == first_key && r < end; r++) head.out.prefetch(first + r, s);
        const auto step = [&](auto pair, int64_t at) {
          softmax_step<pair()>(scores + at * key_tile, keys, max + at, sum + at, sums + at * s.width, s.width);
        };
        for (r = block; r + 2 <= seeing; r += 2) step(std::integral_constant<int, 2>{}, r);
        if (r < seeing) step(std::integral_constant<int, 1>{}, r);
        for (r = block; dropout.active && r < seeing; r++) {
          dropout.draw(factors, first + r, key);
          float* row = scores + r * key_tile;
#pragma omp simd
          for (int64_t j = 0; j < keys; j++) row[j] *= factors[j];
        }
      });
      sum_over_keys(sums + begin * s.width, scores + begin * key_tile, v + key * s.width, s, first + begin,
                    rows - begin, key, key > first_key);
    }
    head.out.store(sums, first, rows, s, [&](int64_t r) { return 1.0f / sum[r]; });
    for (int64_t r = 0; r < rows; r++) head.lse[first + r] = max[r] + std::log(sum[r]);
  }
}
}  // namespace

void run(Queue&, const AttentionForward& op) {
  check_starts(op.name, op.starts);
  const int64_t T = op.dims.T, H = op.dims.H, D = op.dims.D, C = H * D, width = op.dims.qkv_width();
  const HeadDims s(op.dims);
  parallel_for(op.dims.B * H, 2 * T * T * D, [&](int64_t begin, int64_t end) {
    const auto memory = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(ForwardScratch::floats(s)));
    const ForwardScratch scratch(memory.get(), s);
    for (int64_t i = begin; i < end; i++) {
      const int64_t b = i / H, h = i % H, row = b * T * width, keys = row + C + h / op.dims.group() * D;
      const ForwardHead head{{op.qkv, row + h * D, width},
                             {op.qkv, keys, width},
                             {op.qkv, keys + op.dims.kv() * D, width},
                             {op.out, b * T * C + h * D, C},
                             op.lse.data<float>() + i * T};
      forward_head(scratch, head, s, starts_of(op.starts, b), HeadDropout(op.dropout, op.dims, b, h));
    }
  });
}

}  // namespace megalith::cpu
