#include <algorithm>

#include "kernels/embedding/embedding.h"
#include "kernels/loops/loops_cpu.h"

namespace megalith::cpu {

namespace {
void check_tokens(const char* op, const int32_t* tokens, int64_t N, const VocabularyPart& part) {
  for (int64_t n = 0; n < N; n++)
    CHECK(0 <= tokens[n] && tokens[n] < part.total, "{}: token {} at row {}, but the vocabulary has {}", op, tokens[n],
          n, part.total);
}

// The position that is added to each row.
struct Positions {
  const int32_t* starts = nullptr;  // null: all are 0
  int64_t T = 1;

  int64_t of(int64_t row) const { return row % T - (starts ? starts[row] : 0); }
};

Positions positions_of(const char* op, const Tensor& starts, int64_t T) {
  const Positions positions{starts.empty() ? nullptr : starts.data<int32_t>(), T};
  for (int64_t n = 0; n < starts.numel(); n++)
    CHECK(0 <= positions.of(n) && positions.of(n) <= n % T, "{}: starts[{}, {}] is {}, expected 0 to {}", op, n / T,
          n % T, positions.starts[n], n % T);
  return positions;
}
}  // namespace

void embedding_forward(Tensor y_, Tensor tokens_, Tensor wte_, Tensor wpe_, Tensor starts, int64_t T,
                       const VocabularyPart& part) {
  const int32_t* tokens = tokens_.data<int32_t>();
  check_tokens("embedding_forward", tokens, y_.rows(), part);
  const Positions positions = positions_of("embedding_forward", starts, T);
  with_residual_types(wte_.dtype(), y_.dtype(), [&]<class E, class R>(E, R) {
    R* y = y_.data<R>();
    const E *wte = wte_.data<E>(), *wpe = wpe_.data_or_null<E>();
    const int64_t C = y_.cols();
    parallel_for(y_.rows(), C, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        if (!part.holds(tokens[n])) {
          std::fill(y + n * C, y + (n + 1) * C, R{});
          continue;
        }
        if (!wpe) {
          const E* token = wte + (tokens[n] - part.first) * C;
#pragma omp simd
          for (int64_t c = 0; c < C; c++) put(y[n * C + c], get(token[c]));
          continue;
        }
        const E *token = wte + (tokens[n] - part.first) * C, *position = wpe + positions.of(n) * C;
#pragma omp simd
        for (int64_t c = 0; c < C; c++) put(y[n * C + c], get(token[c]) + get(position[c]));
      }
    });
  });
}

void embedding_backward(Tensor dwte_, Tensor dwpe_, Tensor dy_, Tensor tokens_, Tensor starts, int64_t T,
                        const VocabularyPart& part) {
  const int32_t* tokens = tokens_.data<int32_t>();
  const int64_t N = dy_.rows(), C = dy_.cols();
  check_tokens("embedding_backward", tokens, N, part);
  const Positions positions = positions_of("embedding_backward", starts, T);
  with_compute_type(dy_.dtype(), [&](auto tag) {
    using E = decltype(tag);
    float *dwte = dwte_.data_or_null<float>(), *dwpe = dwpe_.data_or_null<float>();
    const E* dy = dy_.data<E>();
    // Threads divide the columns, so that one thread sums equal tokens in row order.
    constexpr int64_t strip = 16;
    parallel_for((C + strip - 1) / strip, 2 * N * strip, [=](int64_t begin, int64_t end) {
      const int64_t first = begin * strip, last = std::min(end * strip, C);
      for (int64_t n = 0; n < N; n++) {
        const bool held = dwte && part.holds(tokens[n]);
        if (!dwpe) {
          if (!held) continue;
          float* token = dwte + (tokens[n] - part.first) * C;
#pragma omp simd
          for (int64_t c = first; c < last; c++) token[c] += get(dy[n * C + c]);
          continue;
        }
        float* position = dwpe + positions.of(n) * C;
        if (!held) {
#pragma omp simd
          for (int64_t c = first; c < last; c++) position[c] += get(dy[n * C + c]);
          continue;
        }
        float* token = dwte + (tokens[n] - part.first) * C;
#pragma omp simd
        for (int64_t c = first; c < last; c++) {
          const float d = get(dy[n * C + c]);
          token[c] += d;
          position[c] += d;
        }
      }
    });
  });
}

}  // namespace megalith::cpu
