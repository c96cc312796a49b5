#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "kernels/attention.h"
#include "kernels/dropout_cpu.h"
#include "kernels/loops_cpu.h"
#include "kernels/tile_gemm_cpu.h"
#include "kernels/vector_math_cpu.h"

namespace megalith::cpu {

namespace {
constexpr int64_t query_tile = 48, key_tile = 64;
constexpr float infinity = std::numeric_limits<float>::infinity();

// The sizes of one head: rows of `width` floats, D padded with zeros to whole vectors.
struct HeadDims {
  int64_t T, D, width;
  explicit HeadDims(const AttentionDims& dims) : T(dims.T), D(dims.D), width(round_up(dims.D, lanes)) {}
  int64_t floats(int64_t rows) const { return rows * width; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(D)); }
};

// The rows of one head in a tensor of any type: row t has D elements from the index `first` + t * `stride` on. They are
// loaded and stored in tiles, right before the first and after the last use, so that a tile stays in the first cache.
struct HeadRows {
  const Tensor& tensor;
  int64_t first, stride;

  template <class Body>
  void each(int64_t begin, int64_t rows, Body body) const {
    with_compute_type(tensor.dtype(), [&](auto tag) {
      using E = decltype(tag);
      E* row = tensor.data<E>() + first + begin * stride;
      for (int64_t t = 0; t < rows; t++) body(t, row + t * stride);
    });
  }
  // Loads rows [begin, begin + rows) as f32, scaled.
  void load(float* to, int64_t begin, int64_t rows, const HeadDims& s, float factor) const {
    each(begin, rows, [to, D = s.D, width = s.width, factor](int64_t t, const auto* row) {
      float* target = to + t * width;
#pragma omp simd
      for (int64_t c = 0; c < D; c++) target[c] = get(row[c]) * factor;
      for (int64_t c = D; c < width; c++) target[c] = 0;
    });
  }
  // Asks for the memory of a row that is stored soon.
  void prefetch(int64_t t, const HeadDims& s) const {
    each(t, 1, [D = s.D](int64_t, const auto* row) {
      constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(*row));
      for (int64_t c = 0; c < D; c += line) __builtin_prefetch(row + c, 1);
    });
  }
  // Stores rows [begin, begin + rows), row t of them scaled by factor_of(t).
  template <class FactorOf>
  void store(const float* from, int64_t begin, int64_t rows, const HeadDims& s, FactorOf factor_of) const {
    each(begin, rows, [from, D = s.D, width = s.width, factor_of](int64_t t, auto* row) {
      const float factor = factor_of(t);
      const float* source = from + t * width;
#pragma omp simd
      for (int64_t c = 0; c < D; c++) put(row[c], source[c] * factor);
    });
  }
};

// Loads the tile of keys at `key`, transposed to (D, key_tile); keys past T are zeros.
void load_transposed(float* to, const HeadRows& from, int64_t key, const HeadDims& s) {
  with_compute_type(from.tensor.dtype(), [&](auto tag) {
    using E = decltype(tag);
    const int64_t stride = from.stride;
    const E* rows = from.tensor.data<E>() + from.first + key * stride;
    for (int64_t j = 0; j < key_tile; j += vector_floats)
      for (int64_t c = 0; c < s.D; c += vector_floats) {
        const E* block = rows + j * stride + c;
        const int64_t columns = std::min(vector_floats, s.D - c);
        const auto row = [=](int64_t i) {
          if (columns == vector_floats) return load_wide(block + i * stride);
          float part[vector_floats] = {};
          for (int64_t l = 0; l < columns; l++) part[l] = get(block[i * stride + l]);
          return cpu::load(part);
        };
        transpose_block(to + c * key_tile + j, key_tile, row, columns, s.T - key - j);
      }
  });
}

// Products go by blocks of tile_block_rows queries or keys, which skip what no pair of a block needs: the keys after
// its queries, the queries before its keys. A row of scores is valid up to the keys that its block computes.
template <class Block>
void by_blocks(int64_t begin, int64_t end, Block block) {
  for (int64_t at = begin; at < end; at += tile_block_rows) block(at, std::min<int64_t>(tile_block_rows, end - at));
}

// Returns how many keys of the tile at `first_key` the queries before `end` can see, in whole vectors.
int64_t keys_seen(int64_t end, int64_t first_key) {
  return std::min(key_tile, round_up(end - first_key, vector_floats));
}

// Computes scores (rows, key_tile) = q k^T for the tile of keys at `key`; q and scores are those of the query `first`.
void scores_of(float* scores, const float* q, const float* k_transposed, const HeadDims& s, int64_t first, int64_t rows,
               int64_t key) {
  by_blocks(0, rows, [&](int64_t r, int64_t n) {
    tile_gemm(scores + r * key_tile, key_tile, {q + r * s.width, s.width, 1}, k_transposed, key_tile, n,
              keys_seen(first + r + n, key), s.D, false);
  });
}

// Computes to (rows, width) = or += scores (rows, key_tile) x, where x has a row for each key of the tile.
void sum_over_keys(float* to, const float* scores, const float* x, const HeadDims& s, int64_t first, int64_t rows,
                   int64_t key, bool accumulate) {
  by_blocks(0, rows, [&](int64_t r, int64_t n) {
    const int64_t depth = std::min(std::min(key_tile, s.T - key), first + r + n - key);
    tile_gemm(to + r * s.width, s.width, {scores + r * key_tile, key_tile, 1}, x, s.width, n, s.width, depth,
              accumulate);
  });
}

// Computes to (keys, width) += scores^T x, where x has a row for each of the queries from `first` on. Keys that no tile
// of queries before this one sees are overwritten.
void sum_over_queries(float* to, const float* scores, const float* x, const HeadDims& s, int64_t first, int64_t rows,
                      int64_t key) {
  by_blocks(0, std::min(std::min(key_tile, s.T - key), first + rows - key), [&](int64_t j, int64_t n) {
    const int64_t r = std::max<int64_t>(0, key + j - first);
    tile_gemm(to + j * s.width, s.width, {scores + r * key_tile + j, 1, key_tile}, x + r * s.width, s.width, n, s.width,
              rows - r, first > key + j);
  });
}

// The first visible key of each query of one sequence.
struct DocumentStarts {
  const int32_t* first = nullptr;  // null: all are 0

  int64_t of(int64_t query) const { return first ? first[query] : 0; }
};

// Makes those scores of a row -infinity whose keys its query does not see: keys of documents before its own, and keys
// after itself. It writes whole vectors, because a vector that is read right after shorter writes waits for them.
void mask(float* row, int64_t keys, const DocumentStarts& starts, int64_t query, int64_t first_key) {
  static constexpr auto table = [] {  // key_tile zeros with -infinity on both sides
    std::array<float, 3 * key_tile> all{};
    std::fill_n(all.begin(), key_tile, -infinity);
    std::fill_n(all.begin() + 2 * key_tile, key_tile, -infinity);
    return all;
  }();
  const int64_t begin = std::clamp<int64_t>(starts.of(query) - first_key, 0, key_tile);
  const int64_t end = std::min(key_tile, query + 1 - first_key);
  if (begin == 0 && end >= keys) return;
  const float *past = table.data() + key_tile - begin, *future = table.data() + 2 * key_tile - end;
  for (int64_t j = begin == 0 ? end / vector_floats * vector_floats : 0; j < keys; j += vector_floats) {
    const Vector hidden = load(past + j) + load(future + j);
    store(row + j, hidden < 0 ? hidden : load(row + j));  // a NaN is hidden too
  }
}

DocumentStarts starts_of(const Tensor& starts, int64_t b) {
  return starts.empty() ? DocumentStarts{} : DocumentStarts{starts.data<int32_t>() + b * starts.cols()};
}

void check_starts(const char* op, const Tensor& starts) {
  for (int64_t b = 0; b < starts.rows(); b++)
    for (int64_t t = 0, before = 0; t < starts.cols(); t++) {
      const int64_t start = starts_of(starts, b).of(t);
      CHECK(before <= start && start <= t, "{}: starts[{}, {}] is {}, expected {} to {}", op, b, t, start, before, t);
      before = start;
    }
}

struct HeadDropout {
  DropoutMask mask;
  bool active;
  uint64_t first_row, group;

  HeadDropout(const Dropout& d, const AttentionDims& dims, int64_t b, int64_t h)
      : mask(d),
        active(d.active()),
        first_row(mask.first_row() + static_cast<uint64_t>(b * dims.T)),
        group(static_cast<uint64_t>(dims.first_head + h) << 32) {}
  void draw(float* factors, int64_t query, int64_t first_key) const {
    mask.draw(factors, first_row + static_cast<uint64_t>(query), group, first_key, key_tile);
  }
};

// One step of the online softmax of neighbouring rows: scores become exp(score - max), and earlier sums are rescaled.
// Two rows at a time keep the processor busy where each waits for its own max.
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
    if (max[r] != -infinity && max[r] != top[r]) {  // before the first keys there is nothing
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

// Memory for the forward pass of a head: v as rows of `width` floats and k transposed, for all keys; q and the sums of
// the output for a tile of queries.
struct ForwardScratch {
  float *v, *k_transposed, *q, *sums;

  ForwardScratch(float* from, const HeadDims& s)
      : v(from),
        k_transposed(v + s.floats(s.T)),
        q(k_transposed + s.floats(round_up(s.T, key_tile))),
        sums(q + s.floats(query_tile)) {}
  static int64_t floats(const HeadDims& s) { return s.floats(s.T + round_up(s.T, key_tile) + 2 * query_tile); }
};

// The tensors of one head's forward pass.
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
        std::fill(scores + r * key_tile, scores + end * key_tile, 0.0f);  // what sees nothing yet
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

// Memory for the backward pass of a head, in rows of `width` floats: q, dout, dq and the residue of each row's sum for
// all queries; k, v and their gradients for a tile of keys.
struct BackwardScratch {
  float *q, *dout, *dq, *excess, *k, *k_transposed, *v, *v_transposed, *dk, *dv;

  BackwardScratch(float* from, const HeadDims& s) {
    const int64_t all = s.floats(s.T), tile = s.floats(key_tile);
    for (float** queries : {&q, &dout, &dq}) from = (*queries = from) + all;
    for (float** keys : {&k, &k_transposed, &v, &v_transposed, &dk, &dv}) from = (*keys = from) + tile;
    excess = from;
  }
  static int64_t floats(const HeadDims& s) { return s.floats(3 * s.T + 6 * key_tile) + s.T; }
};

// The tensors of one head's backward pass; those of the keys belong to a group of heads.
struct BackwardHead {
  HeadRows q, k, v, out, dout, dq, dk, dv;
  const float* lse;
  float* delta;
  float *dk_sum, *dv_sum;  // of the heads before this one in its group; null if it is alone
  bool is_last;            // of its group

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
  // Stores the gradients of the keys [begin, begin + rows), or adds them to those of the group.
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
  const auto [q, dout, dq, excess, k, k_transposed, v, v_transposed, dk, dv] = scratch;
  alignas(64) float scores[query_tile * key_tile], dp[query_tile * key_tile], factors[key_tile];
  std::fill(factors, factors + key_tile, 1.0f);
  int64_t loaded = 0;  // queries
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

void attention_forward(Tensor out, Tensor lse, Tensor qkv, Tensor starts, const AttentionDims& dims, const Dropout& d) {
  check_starts("attention_forward", starts);
  const int64_t T = dims.T, H = dims.H, D = dims.D, C = H * D, width = dims.qkv_width();
  const HeadDims s(dims);
  parallel_for(dims.B * H, 2 * T * T * D, [&](int64_t begin, int64_t end) {
    const auto memory = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(ForwardScratch::floats(s)));
    const ForwardScratch scratch(memory.get(), s);
    for (int64_t i = begin; i < end; i++) {
      const int64_t b = i / H, h = i % H, row = b * T * width, keys = row + C + h / dims.group() * D;
      const ForwardHead head{{qkv, row + h * D, width},
                             {qkv, keys, width},
                             {qkv, keys + dims.kv() * D, width},
                             {out, b * T * C + h * D, C},
                             lse.data<float>() + i * T};
      forward_head(scratch, head, s, starts_of(starts, b), HeadDropout(d, dims, b, h));
    }
  });
}

void attention_backward(Tensor dqkv, Tensor delta, Tensor dout, Tensor out, Tensor lse, Tensor qkv, Tensor starts,
                        const AttentionDims& dims, const Dropout& d) {
  check_starts("attention_backward", starts);
  const int64_t T = dims.T, H = dims.H, D = dims.D, C = H * D, width = dims.qkv_width();
  const int64_t K = dims.kv(), group = dims.group();
  const HeadDims s(dims);
  parallel_for(dims.B * K, 5 * group * T * T * D, [&](int64_t begin, int64_t end) {
    const int64_t sums = group > 1 ? s.floats(T) : 0;  // of the group's dk, and of its dv
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
        const BackwardHead head{{qkv, query, width},
                                {qkv, keys, width},
                                {qkv, values, width},
                                {out, output, C},
                                {dout, output, C},
                                {dqkv, query, width},
                                {dqkv, keys, width},
                                {dqkv, values, width},
                                lse.data<float>() + i * T,
                                delta.data<float>() + i * T,
                                dk_sum,
                                dv_sum,
                                (h + 1) % group == 0};
        backward_head(scratch, head, qkv.dtype() == DType::f32, s, starts_of(starts, b), HeadDropout(d, dims, b, h));
      }
    }
  });
}

}  // namespace megalith::cpu
