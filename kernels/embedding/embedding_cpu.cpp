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

void run(Queue&, const EmbeddingForward& op) {
  const int32_t* tokens = op.tokens.data<int32_t>();
  check_tokens(op.name, tokens, op.y.rows(), op.part);
  const Positions positions = positions_of(op.name, op.starts, op.T);
  with_residual_types(op.wte.dtype(), op.y.dtype(), [&]<class E, class R>(E, R) {
    R* y = op.y.data<R>();
    const E *wte = op.wte.data<E>(), *wpe = op.wpe.data_or_null<E>();
    const int64_t C = op.y.cols();
    parallel_for(op.y.rows(), C, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        if (!op.part.holds(tokens[n])) {
          std::fill(y + n * C, y + (n + 1) * C, R{});
          continue;
        }
        if (!wpe) {
          const E* token = wte + (tokens[n] - op.part.first) * C;
#pragma omp simd
          for (int64_t c = 0; c < C; c++) put(y[n * C + c], get(token[c]));
          continue;
        }
        const E *token = wte + (tokens[n] - op.part.first) * C, *position = wpe + positions.of(n) * C;
#pragma omp simd
        for (int64_t c = 0; c < C; c++) put(y[n * C + c], get(token[c]) + get(position[c]));
      }
    });
  });
}

void run(Queue&, const EmbeddingBackward& op) {
  const int32_t* tokens = op.tokens.data<int32_t>();
  const int64_t N = op.dy.rows(), C = op.dy.cols();
  check_tokens(op.name, tokens, N, op.part);
  const Positions positions = positions_of(op.name, op.starts, op.T);
  with_compute_type(op.dy.dtype(), [&](auto tag) {
    using E = decltype(tag);
    float *dwte = op.dwte.data_or_null<float>(), *dwpe = op.dwpe.data_or_null<float>();
    const E* dy = op.dy.data<E>();
    // Threads divide the columns, so that one thread sums equal tokens in row order.
    constexpr int64_t strip = 16;
    parallel_for((C + strip - 1) / strip, 2 * N * strip, [=](int64_t begin, int64_t end) {
      const int64_t first = begin * strip, last = std::min(end * strip, C);
      for (int64_t n = 0; n < N; n++) {
        const bool held = dwte && op.part.holds(tokens[n]);
        if (!dwpe) {
          if (!held) continue;
          float* token = dwte + (tokens[n] - op.part.first) * C;
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
        float* token = dwte + (tokens[n] - op.part.first) * C;
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
