#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/attention/cached_attention.h"
#include "kernels/loops/loops_cpu.h"
#include "kernels/loops/vector_math_cpu.h"

namespace megalith::cpu {

namespace {
void check_rows(const char* op, const int32_t* rows, int64_t N, int64_t slots, int64_t positions) {
  for (int64_t n = 0; n < N; n++)
    CHECK(0 <= rows[2 * n] && rows[2 * n] < slots && 0 <= rows[2 * n + 1] && rows[2 * n + 1] < positions,
          "{}: row {} is position {} of slot {}, but there are {} positions in {} slots", op, n, rows[2 * n + 1],
          rows[2 * n], positions, slots);
}

template <class E>
float dot(const E* a, const E* b, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += get(a[i]) * get(b[i]);
  return sum;
}

// Computes one head of one row over `n` keys. `scores` and `sums` are scratch of n and D floats.
template <class E>
void attend(E* out, const E* q, const E* k, const E* v, int64_t n, int64_t D, float* scores, float* sums) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  for (int64_t j = 0; j < n; j++) scores[j] = scale * dot(q, k + j * D, D);
  const float top = *std::max_element(scores, scores + n);
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t j = 0; j < n; j++) {
    scores[j] = cpu::exp(scores[j] - top);
    total += scores[j];
  }
  std::fill(sums, sums + D, 0.0f);
  for (int64_t j = 0; j < n; j++)
#pragma omp simd
    for (int64_t c = 0; c < D; c++) sums[c] += scores[j] * get(v[j * D + c]);
  const float inverse = 1.0f / total;
#pragma omp simd
  for (int64_t c = 0; c < D; c++) put(out[c], sums[c] * inverse);
}
}  // namespace

void run(Queue&, const KeepKeysValues& op) {
  const Shape& shape = op.cache.shape();
  const int64_t slots = shape[0] / 2, K = shape[1], T = shape[2], D = shape[3], N = op.qkv.rows(), A = K * D;
  const int64_t width = op.qkv.cols(), first = width - 2 * A;
  const int32_t* rows = op.rows.data<int32_t>();
  check_rows(op.name, rows, N, slots, T);
  with_compute_type(op.cache.dtype(), [&](auto tag) {
    using E = decltype(tag);
    E* cache = op.cache.data<E>();
    const E* qkv = op.qkv.data<E>();
    parallel_for(N, 2 * A, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++)
        for (int64_t kind = 0; kind < 2; kind++)
          for (int64_t h = 0; h < K; h++)
            std::memcpy(cache + (((kind * slots + rows[2 * n]) * K + h) * T + rows[2 * n + 1]) * D,
                        qkv + n * width + first + kind * A + h * D, static_cast<size_t>(D) * sizeof(E));
    });
  });
}

void run(Queue&, const CachedAttention& op) {
  const Shape& shape = op.cache.shape();
  const int64_t slots = shape[0] / 2, K = shape[1], T = shape[2], D = shape[3], N = op.qkv.rows();
  const int64_t width = op.qkv.cols(), A = width - 2 * K * D, H = A / D, group = H / K;
  const int32_t* rows = op.rows.data<int32_t>();
  check_rows(op.name, rows, N, slots, op.longest);
  with_compute_type(op.cache.dtype(), [&](auto tag) {
    using E = decltype(tag);
    E* out = op.out.data<E>();
    const E *qkv = op.qkv.data<E>(), *cache = op.cache.data<E>();
    parallel_for(N * H, 2 * op.longest * D, [=](int64_t begin, int64_t end) {
      std::vector<float> scratch(static_cast<size_t>(op.longest + D));
      for (int64_t i = begin; i < end; i++) {
        const int64_t n = i / H, h = i % H, slot = rows[2 * n];
        const E *keys = cache + (slot * K + h / group) * T * D, *values = keys + slots * K * T * D;
        attend(out + n * A + h * D, qkv + n * width + h * D, keys, values, rows[2 * n + 1] + 1, D, scratch.data(),
               scratch.data() + op.longest);
      }
    });
  });
}

}  // namespace megalith::cpu
