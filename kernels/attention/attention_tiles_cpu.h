// Shared by both CPU passes of attention: tiles of one head's rows, the products of tiles that skip what the mask
// hides, the mask, and dropout.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/attention/attention.h"
#include "kernels/elementwise/dropout_cpu.h"
#include "kernels/linear/tile_gemm_cpu.h"
#include "kernels/loops/loops_cpu.h"

namespace megalith::cpu {

constexpr int64_t query_tile = 48, key_tile = 64;
constexpr float infinity = std::numeric_limits<float>::infinity();

// The sizes of one head: rows of `width` floats, D padded with zeros to whole vectors.
struct HeadDims {
  int64_t T, D, width;
  explicit HeadDims(const AttentionDims& dims) : T(dims.T), D(dims.D), width(round_up(dims.D, lanes)) {}
  int64_t floats(int64_t rows) const { return rows * width; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(D)); }
};

// The rows of one head in a tensor of any type: row t has D elements, from index `first` + t * `stride` on. Rows are
// loaded right before their first use and stored right after their last, a tile at a time, so that a tile stays in the
// first cache.
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
  // Prefetches the memory of a row that is stored soon.
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
inline void load_transposed(float* to, const HeadRows& from, int64_t key, const HeadDims& s) {
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
inline void by_blocks(int64_t begin, int64_t end, Block block) {
  for (int64_t at = begin; at < end; at += tile_block_rows) block(at, std::min<int64_t>(tile_block_rows, end - at));
}

// Returns how many keys of the tile at `first_key` the queries before `end` can see, in whole vectors.
inline int64_t keys_seen(int64_t end, int64_t first_key) {
  return std::min(key_tile, round_up(end - first_key, vector_floats));
}

// Computes scores (rows, key_tile) = q k^T for the tile of keys at `key`. The rows of q and scores start at query
// `first`.
inline void scores_of(float* scores, const float* q, const float* k_transposed, const HeadDims& s, int64_t first,
                      int64_t rows, int64_t key) {
  by_blocks(0, rows, [&](int64_t r, int64_t n) {
    tile_gemm(scores + r * key_tile, key_tile, {q + r * s.width, s.width, 1}, k_transposed, key_tile, n,
              keys_seen(first + r + n, key), s.D, false);
  });
}

// Computes to (rows, width) = or += scores (rows, key_tile) x, where x has a row for each key of the tile.
inline void sum_over_keys(float* to, const float* scores, const float* x, const HeadDims& s, int64_t first,
                          int64_t rows, int64_t key, bool accumulate) {
  by_blocks(0, rows, [&](int64_t r, int64_t n) {
    const int64_t depth = std::min(std::min(key_tile, s.T - key), first + r + n - key);
    tile_gemm(to + r * s.width, s.width, {scores + r * key_tile, key_tile, 1}, x, s.width, n, s.width, depth,
              accumulate);
  });
}

// The first visible key of each query of one sequence.
struct DocumentStarts {
  const int32_t* first = nullptr;  // null: all are 0

  int64_t of(int64_t query) const { return first ? first[query] : 0; }
};

// Sets those scores of a row to -infinity whose keys its query does not see: keys of earlier documents, and later keys.
// It writes whole vectors, because a vector load right after shorter stores waits for them.
inline void mask(float* row, int64_t keys, const DocumentStarts& starts, int64_t query, int64_t first_key) {
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

inline DocumentStarts starts_of(const Tensor& starts, int64_t b) {
  return starts.empty() ? DocumentStarts{} : DocumentStarts{starts.data<int32_t>() + b * starts.cols()};
}

inline void check_starts(const char* op, const Tensor& starts) {
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

}  // namespace megalith::cpu
