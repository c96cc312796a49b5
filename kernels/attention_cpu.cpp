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
  int64_t T, D, width, tiles;
  explicit HeadDims(const AttentionDims& dims)
      : T(dims.T), D(dims.D), width(round_up(dims.D, lanes)), tiles((dims.T + key_tile - 1) / key_tile) {}
  int64_t floats() const { return T * width; }
  int64_t transposed_floats() const { return tiles * key_tile * D; }
};

// Loads one head's rows as f32, scaled. Only gather() and scatter() know the tensors' type.
template <class E>
void gather(float* to, const E* from, int64_t stride, const HeadDims& s, float factor) {
  for (int64_t t = 0; t < s.T; t++) {
    const E* row = from + t * stride;
    float* target = to + t * s.width;
#pragma omp simd
    for (int64_t c = 0; c < s.D; c++) target[c] = get(row[c]) * factor;
    for (int64_t c = s.D; c < s.width; c++) target[c] = 0;
  }
}

// `stride` belongs to `to`.
template <class E>
void scatter(E* to, int64_t stride, const float* from, const HeadDims& s, float factor) {
  for (int64_t t = 0; t < s.T; t++)
#pragma omp simd
    for (int64_t c = 0; c < s.D; c++) put(to[t * stride + c], from[t * s.width + c] * factor);
}

float scale_of(const HeadDims& s) { return 1.0f / std::sqrt(static_cast<float>(s.D)); }

// Makes tiles of key_tile rows, each transposed to (D, key_tile); rows past T are zeros.
void transpose_tiles(float* to, const float* from, const HeadDims& s) {
  for (int64_t tile = 0; tile < s.tiles; tile++) {
    const float* source = from + tile * key_tile * s.width;
    float* target = to + tile * key_tile * s.D;
    const int64_t rows = std::min(key_tile, s.T - tile * key_tile);
    for (int64_t j = 0; j < key_tile; j += vector_floats)
      for (int64_t c = 0; c < s.D; c += vector_floats)
        transpose_block(target + c * key_tile + j, key_tile, source + j * s.width + c, s.width, s.D - c, rows - j);
  }
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
  for (int64_t j = 0; j < keys; j += vector_floats) {
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

// One step of a row's online softmax: scores become exp(score - max), and earlier sums are rescaled.
void softmax_step(float* row, int64_t keys, float& max, float& sum, float* out, int64_t width) {
  Vector tops = Vector{} - infinity;
  for (int64_t j = 0; j < keys; j += vector_floats) {
    const Vector scores = load(row + j);
    tops = scores > tops ? scores : tops;
  }
  const float top = std::max(max, max_of_lanes(tops)), rescale = cpu::exp(max - top);
  Vector sums{};
  for (int64_t j = 0; j < keys; j += vector_floats) {
    const Vector weights = cpu::exp(load(row + j) - top);
    store(row + j, weights);
    sums += weights;
  }
  if (rescale != 1.0f && max != -infinity)  // before the first keys there is nothing
#pragma omp simd
    for (int64_t c = 0; c < width; c++) out[c] *= rescale;
  sum = sum * rescale + sum_of_lanes(sums);
  max = top;
}

// The inputs of one head's forward pass: q, already scaled, k and v as rows of `width` floats.
struct ForwardHead {
  float *q, *v, *k, *k_transposed;

  ForwardHead(float* scratch, const HeadDims& s)
      : q(scratch), v(q + s.floats()), k(v + s.floats()), k_transposed(k + s.floats()) {}
  static int64_t floats(const HeadDims& s) { return 3 * s.floats() + s.transposed_floats(); }
};

// The output overwrites k.
void forward_head(const ForwardHead& head, float* lse, const HeadDims& s, const DocumentStarts& starts,
                  const HeadDropout& dropout) {
  const auto [q, v, k, k_transposed] = head;
  transpose_tiles(k_transposed, k, s);
  alignas(64) float scores[query_tile * key_tile], factors[key_tile];
  float max[query_tile], sum[query_tile];
  for (int64_t first = 0; first < s.T; first += query_tile) {
    const int64_t rows = std::min(query_tile, s.T - first);
    float* sums = k + first * s.width;  // k's plain rows are no longer needed
    std::fill(max, max + rows, -infinity);
    std::fill(sum, sum + rows, 0.0f);
    const int64_t first_key = starts.of(first) / key_tile * key_tile;
    for (int64_t key = first_key; key < first + rows; key += key_tile) {
      const int64_t begin = std::max<int64_t>(0, key - first);  // the first row that sees any of these keys
      scores_of(scores + begin * key_tile, q + (first + begin) * s.width, k_transposed + key * s.D, s, first + begin,
                rows - begin, key);
      for (int64_t r = begin; r < rows; r++) {
        float* row = scores + r * key_tile;
        const int64_t block_end = std::min(rows, begin + round_up(r + 1 - begin, tile_block_rows));
        const int64_t keys = keys_seen(first + block_end, key);
        if (starts.of(first + r) >= key + keys) {  // it sees nothing yet
          std::fill(row, row + keys, 0.0f);
          continue;
        }
        mask(row, keys, starts, first + r, key);
        softmax_step(row, keys, max[r], sum[r], sums + r * s.width, s.width);
        if (!dropout.active) continue;
        dropout.draw(factors, first + r, key);
#pragma omp simd
        for (int64_t j = 0; j < keys; j++) row[j] *= factors[j];
      }
      sum_over_keys(sums + begin * s.width, scores + begin * key_tile, v + key * s.width, s, first + begin,
                    rows - begin, key, key > first_key);
    }
    for (int64_t r = 0; r < rows; r++) {
      const float inverse = 1.0f / sum[r];
      float* row = sums + r * s.width;
#pragma omp simd
      for (int64_t c = 0; c < s.width; c++) row[c] *= inverse;
      lse[first + r] = max[r] + std::log(sum[r]);
    }
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

// The inputs of one head's backward pass, with memory for the gradients.
struct BackwardHead {
  float *q, *k, *v, *dout, *dq, *k_transposed, *v_transposed, *dk_tile, *excess;

  BackwardHead(float* scratch, const HeadDims& s)
      : q(scratch),
        k(q + s.floats()),
        v(k + s.floats()),
        dout(v + s.floats()),
        dq(dout + s.floats()),
        k_transposed(dq + s.floats()),
        v_transposed(k_transposed + s.transposed_floats()),
        dk_tile(v_transposed + s.transposed_floats()),
        excess(dk_tile + key_tile * s.width) {}
  static int64_t floats(const HeadDims& s) {
    return 5 * s.floats() + 2 * s.transposed_floats() + key_tile * s.width + s.T;
  }
};

// Computes dq without the scale; dk and dv overwrite k and v.
void backward_head(const BackwardHead& head, const float* lse, const float* delta, bool balanced, const HeadDims& s,
                   const DocumentStarts& starts, const HeadDropout& dropout) {
  const auto [q, k, v, dout, dq, k_transposed, v_transposed, dk_tile, excess] = head;
  transpose_tiles(k_transposed, k, s);
  transpose_tiles(v_transposed, v, s);
  std::fill(dq, dq + s.floats(), 0.0f);
  // If `balanced`, the residue of a row's sum is subtracted from the diagonal (attention.h), whose tile comes last.
  std::fill(excess, excess + s.T, 0.0f);
  alignas(64) float scores[query_tile * key_tile], dp[query_tile * key_tile], factors[key_tile];
  std::fill(factors, factors + key_tile, 1.0f);
  for (int64_t key = 0; key < s.T; key += key_tile) {
    const int64_t keys = std::min(key_tile, s.T - key);
    float* dv = v + key * s.width;  // v's plain rows are no longer needed
    // Tiles of queries run from the first query that sees these keys to the end of the keys' documents.
    for (int64_t first = key; first < s.T && starts.of(first) < key + keys; first += query_tile) {
      const int64_t rows = std::min(query_tile, s.T - first);
      scores_of(scores, q + first * s.width, k_transposed + key * s.D, s, first, rows, key);
      scores_of(dp, dout + first * s.width, v_transposed + key * s.D, s, first, rows, key);
      for (int64_t r = 0; r < rows; r++) {
        const int64_t seen = keys_seen(first + std::min(rows, round_up(r + 1, tile_block_rows)), key);
        float *row = scores + r * key_tile, *dp_row = dp + r * key_tile;
        if (dropout.active) dropout.draw(factors, first + r, key);
        mask(row, seen, starts, first + r, key);
        const float sum = backward_row(row, dp_row, seen, lse[first + r], delta[first + r], factors);
        if (balanced) {
          excess[first + r] += sum;
          if (first + r < key + key_tile) dp_row[first + r - key] -= excess[first + r];
        }
      }
      sum_over_queries(dv, scores, dout + first * s.width, s, first, rows, key);
      sum_over_queries(dk_tile, dp, q + first * s.width, s, first, rows, key);
      sum_over_keys(dq + first * s.width, dp, k + key * s.width, s, first, rows, key, true);
    }
    std::copy(dk_tile, dk_tile + keys * s.width, k + key * s.width);
  }
}
}  // namespace

void attention_forward(Tensor out_, Tensor lse_, Tensor qkv_, Tensor starts, const AttentionDims& dims,
                       const Dropout& d) {
  check_starts("attention_forward", starts);
  with_compute_type(qkv_.dtype(), [&](auto tag) {
    using E = decltype(tag);
    E* out = out_.data<E>();
    float* lse = lse_.data<float>();
    const E* qkv = qkv_.data<E>();
    const int64_t T = dims.T, H = dims.H, D = dims.D, C = H * D, width = dims.qkv_width(), group = dims.group();
    const int64_t to_values = dims.kv() * D;
    const HeadDims s(dims);
    parallel_for(dims.B * H, 2 * T * T * D, [=](int64_t begin, int64_t end) {
      const auto scratch = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(ForwardHead::floats(s)));
      const ForwardHead head(scratch.get(), s);
      for (int64_t i = begin; i < end; i++) {
        const int64_t b = i / H, h = i % H;
        const E *row = qkv + b * T * width, *k = row + C + h / group * D;
        gather(head.q, row + h * D, width, s, scale_of(s));
        gather(head.k, k, width, s, 1);
        gather(head.v, k + to_values, width, s, 1);
        forward_head(head, lse + i * T, s, starts_of(starts, b), HeadDropout(d, dims, b, h));
        scatter(out + b * T * C + h * D, C, head.k, s, 1);
      }
    });
  });
}

void attention_backward(Tensor dqkv_, Tensor delta_, Tensor dout_, Tensor out_, Tensor lse_, Tensor qkv_, Tensor starts,
                        const AttentionDims& dims, const Dropout& d) {
  check_starts("attention_backward", starts);
  with_compute_type(qkv_.dtype(), [&](auto tag) {
    using E = decltype(tag);
    E* dqkv = dqkv_.data<E>();
    float* delta = delta_.data<float>();
    const E *dout = dout_.data<E>(), *out = out_.data<E>(), *qkv = qkv_.data<E>();
    const float* lse = lse_.data<float>();
    const int64_t T = dims.T, H = dims.H, D = dims.D, C = H * D, width = dims.qkv_width();
    const int64_t K = dims.kv(), group = dims.group();
    const HeadDims s(dims);
    parallel_for(dims.B * K, 5 * group * T * T * D, [=](int64_t begin, int64_t end) {
      const int64_t sums = group > 1 ? 2 * s.floats() : 0;  // of the group's dk, then of its dv
      const auto scratch = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(BackwardHead::floats(s) + sums));
      const BackwardHead head(scratch.get(), s);
      float *dk = group > 1 ? scratch.get() + BackwardHead::floats(s) : head.k,
            *dv = group > 1 ? dk + s.floats() : head.v;
      for (int64_t j = begin; j < end; j++) {
        const int64_t b = j / K, to_keys = b * T * width + C + j % K * D, to_values = to_keys + K * D;
        if (group > 1) std::fill(dk, dk + sums, 0.0f);
        for (int64_t h = j % K * group; h < (j % K + 1) * group; h++) {
          const int64_t i = b * H + h, first = b * T * C + h * D, to_queries = b * T * width + h * D;
          for (int64_t t = 0; t < T; t++) {
            float dot = 0;
#pragma omp simd reduction(+ : dot)
            for (int64_t c = 0; c < D; c++) dot += get(out[first + t * C + c]) * get(dout[first + t * C + c]);
            delta[i * T + t] = dot;
          }
          gather(head.q, qkv + to_queries, width, s, scale_of(s));
          gather(head.k, qkv + to_keys, width, s, 1);
          gather(head.v, qkv + to_values, width, s, 1);
          gather(head.dout, dout + first, C, s, 1);
          backward_head(head, lse + i * T, delta + i * T, std::is_same_v<E, float>, s, starts_of(starts, b),
                        HeadDropout(d, dims, b, h));
          scatter(dqkv + to_queries, width, head.dq, s, scale_of(s));
          if (group == 1) continue;
#pragma omp simd
          for (int64_t c = 0; c < s.floats(); c++) dk[c] += head.k[c];
#pragma omp simd
          for (int64_t c = 0; c < s.floats(); c++) dv[c] += head.v[c];
        }
        scatter(dqkv + to_keys, width, dk, s, 1);
        scatter(dqkv + to_values, width, dv, s, 1);
      }
    });
  });
}

}  // namespace megalith::cpu
