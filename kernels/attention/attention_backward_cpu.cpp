#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/attention/attention_tiles_cpu.h"
#include "kernels/loops/vector_math_cpu.h"

namespace megalith::cpu {

namespace {
// Adds scores^T x to (keys, width), where x has a row for each query from `first` on. Keys that no earlier tile of
// queries sees are overwritten instead.
void sum_over_queries(float* to, const float* scores, const float* x, const HeadDims& s, int64_t first, int64_t rows,
                      int64_t key) {
  by_blocks(0, std::min(std::min(key_tile, s.T - key), first + rows - key), [&](int64_t j, int64_t n) {
    const int64_t r = std::max<int64_t>(0, key + j - first);
    tile_gemm(to + j * s.width, s.width, {scores + r * key_tile + j, 1, key_tile}, x + r * s.width, s.width, n, s.width,
              rows - r, first > key + j);
  });
}

// Turns the scores of one row into dropped P, and dP into dS. Returns the sum of dS.
float backward_row(float* scores, float* dp, int64_t keys, float lse, float delta, const float* factors) {
  Vector sums{};
  for (int64_t j = 0; j < keys; j += vector_floats) {
    const Vector p = cpu::exp(load(scores + j) - lse), factor = load(factors + j);
    const Vector products = p * (load(dp + j) * factor - delta), ds = p != 0 ? products : 0.0f;
    store(dp + j, ds);
    store(scores + j, p * factor);
    sums += ds;
  }
  return sum_of_lanes(sums);
}

// Memory for one head's backward pass, in rows of `width` floats: q, dout, dq and the residue of each row's sum for all
// queries; k, k and v transposed, and their gradients for a tile of keys.
struct BackwardScratch {
  float *q, *dout, *dq, *excess, *k, *k_transposed, *v_transposed, *dk, *dv;

  BackwardScratch(float* from, const HeadDims& s) {
    const int64_t all = s.floats(s.T), tile = s.floats(key_tile);
    for (float** queries : {&q, &dout, &dq}) from = (*queries = from) + all;
    for (float** keys : {&k, &k_transposed, &v_transposed, &dk, &dv}) from = (*keys = from) + tile;
    excess = from;
  }
  static int64_t floats(const HeadDims& s) { return s.floats(3 * s.T + 5 * key_tile) + s.T; }
};

// The tensors of one head's backward pass. Key tensors belong to a group of heads.
struct BackwardHead {
  HeadRows q, k, v, out, dout, dq, dk, dv;
  const float* lse;
  float* delta;
  float *dk_sum, *dv_sum;  // sums over the earlier heads of the group; null if it has one head
  bool is_last;            // the last head of its group

  // Loads the queries [begin, end), and computes their delta.
  void load_queries(const BackwardScratch& scratch, int64_t begin, int64_t end, const HeadDims& s) const {
    const int64_t rows = end - begin, at = s.floats(begin);
    q.load(scratch.q + at, begin, rows, s, s.scale());
    dout.load(scratch.dout + at, begin, rows, s, 1);
    out.each(begin, rows, [&](int64_t t, const auto* row) {
      const float* d = scratch.dout + at + s.floats(t);
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t c = 0; c < s.D; c++) dot += get(row[c]) * d[c];
      delta[begin + t] = dot;
    });
    std::fill_n(scratch.excess + begin, rows, 0.0f);
  }
  void prefetch_gradients(int64_t t, const HeadDims& s) const {
    dq.prefetch(t, s);
    dk.prefetch(t, s);
    dv.prefetch(t, s);
  }
  // Stores the gradients of the keys [begin, begin + rows), or adds them to the group's.
  void store_keys(const BackwardScratch& scratch, int64_t begin, int64_t rows, const HeadDims& s) const {
    const auto store = [&](const HeadRows& to, const float* tile, float* sum) {
      if (sum != nullptr) {
        sum += s.floats(begin);
#pragma omp simd
        for (int64_t c = 0; c < s.floats(rows); c++) sum[c] += tile[c];
        tile = sum;
      }
      if (is_last) to.store(tile, begin, rows, s, [](int64_t) { return 1.0f; });
    };
    store(dk, scratch.dk, dk_sum);
    store(dv, scratch.dv, dv_sum);
  }
};

// If `balanced`, the residue of a row's sum is subtracted from the diagonal (attention.h), whose tile comes last.
void backward_head(const BackwardScratch& scratch, const BackwardHead& head, bool balanced, const HeadDims& s,
                   const DocumentStarts& starts, const HeadDropout& dropout) {
  const auto [q, dout, dq, excess, k, k_transposed, v_transposed, dk, dv] = scratch;
  alignas(64) float scores[query_tile * key_tile], dp[query_tile * key_tile], factors[key_tile];
  std::fill(factors, factors + key_tile, 1.0f);
  int64_t loaded = 0;  // queries loaded so far
  for (int64_t key = 0; key < s.T; key += key_tile) {
    const int64_t keys = std::min(key_tile, s.T - key);
    head.k.load(k, key, keys, s, 1);
    load_transposed(k_transposed, head.k, key, s);
    load_transposed(v_transposed, head.v, key, s);
    // Tiles of queries run from the first query that sees these keys to the end of the keys' documents.
    for (int64_t first = key; first < s.T && starts.of(first) < key + keys; first += query_tile) {
      const int64_t rows = std::min(query_tile, s.T - first);
      const bool begins_dq = loaded == first;  // `loaded` is never less
      if (loaded < first + rows) {
        if (!begins_dq) std::fill(dq + s.floats(loaded), dq + s.floats(first + rows), 0.0f);
        head.load_queries(scratch, loaded, first + rows, s);
        loaded = first + rows;
      }
      scores_of(scores, q + first * s.width, k_transposed, s, first, rows, key);
      scores_of(dp, dout + first * s.width, v_transposed, s, first, rows, key);
      for (int64_t r = 0; r < rows; r++) {
        const int64_t seen = keys_seen(first + std::min(rows, round_up(r + 1, tile_block_rows)), key);
        float *row = scores + r * key_tile, *dp_row = dp + r * key_tile;
        if (first + r < key + keys) head.prefetch_gradients(first + r, s);
        if (dropout.active) dropout.draw(factors, first + r, key);
        mask(row, seen, starts, first + r, key);
        const float sum = backward_row(row, dp_row, seen, head.lse[first + r], head.delta[first + r], factors);
        if (balanced) {
          excess[first + r] += sum;
          if (first + r < key + key_tile) dp_row[first + r - key] -= excess[first + r];
        }
      }
      sum_over_queries(dv, scores, dout + first * s.width, s, first, rows, key);
      sum_over_queries(dk, dp, q + first * s.width, s, first, rows, key);
      sum_over_keys(dq + first * s.width, dp, k, s, first, rows, key, !begins_dq);
    }
    head.dq.store(dq + s.floats(key), key, keys, s, [&](int64_t) { return s.scale(); });
    head.store_keys(scratch, key, keys, s);
  }
}
}  // namespace

void run(Queue&, const AttentionBackward& op) {
  check_starts(op.name, op.starts);
  const int64_t T = op.dims.T, H = op.dims.H, D = op.dims.D, C = H * D, width = op.dims.qkv_width();
  const int64_t K = op.dims.kv(), group = op.dims.group();
  const HeadDims s(op.dims);
  parallel_for(op.dims.B * K, 5 * group * T * T * D, [&](int64_t begin, int64_t end) {
    const int64_t sums = group > 1 ? s.floats(T) : 0;  // the group's sums of dk and of dv
    const auto memory =
        std::make_unique_for_overwrite<float[]>(static_cast<size_t>(BackwardScratch::floats(s) + 2 * sums));
    const BackwardScratch scratch(memory.get(), s);
    float* dk_sum = group > 1 ? memory.get() + BackwardScratch::floats(s) : nullptr;
    float* dv_sum = group > 1 ? dk_sum + sums : nullptr;
    for (int64_t j = begin; j < end; j++) {
      const int64_t b = j / K, row = b * T * width, keys = row + C + j % K * D, values = keys + K * D;
      if (group > 1) std::fill(dk_sum, dk_sum + 2 * sums, 0.0f);
      for (int64_t h = j % K * group; h < (j % K + 1) * group; h++) {
        const int64_t i = b * H + h, query = row + h * D, output = b * T * C + h * D;
        const BackwardHead head{{op.qkv, query, width},
                                {op.qkv, keys, width},
                                {op.qkv, values, width},
                                {op.out, output, C},
                                {op.dout, output, C},
                                {op.dqkv, query, width},
                                {op.dqkv, keys, width},
                                {op.dqkv, values, width},
                                op.lse.data<float>() + i * T,
                                op.delta.data<float>() + i * T,
                                dk_sum,
                                dv_sum,
                                (h + 1) % group == 0};
        backward_head(scratch, head, op.qkv.dtype() == DType::f32, s, starts_of(op.starts, b),
                      HeadDropout(op.dropout, op.dims, b, h));
      }
    }
  });
}

}  // namespace megalith::cpu
