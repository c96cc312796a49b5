#include "kernels/update/muon.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/loops/loops_cpu.h"
#include "kernels/update/decide_update.h"

namespace megalith::cpu {

namespace {

const UpdateState& update_state_of(const Tensor& state) {
  return *reinterpret_cast<const UpdateState*>(state.data<double>());
}
bool updates(const UpdateState& state) { return state.decision == static_cast<double>(Decision::update); }

// Stores element i of bf16 or f32 state with word number `word` of its random words; returns the stored value.
template <bool stochastic, class T>
float store_rounded(T& to, float value, const Rounding& rounding, int64_t i, size_t word) {
  if constexpr (stochastic) {
    to.bits = stochastic_bf16(value, rounding.words(i)[word]);
  } else {
    put(to, value);
  }
  return get(to);
}

// Sums in f64 over blocks that depend on n alone.
template <class T>
double square_sum_of(const T* x, int64_t n) {
  constexpr int64_t most_blocks = 256;
  const int64_t size = std::max<int64_t>(1024, (n + most_blocks - 1) / most_blocks);
  const int64_t blocks = (n + size - 1) / size;
  std::array<double, most_blocks> partial{};
  parallel_for(blocks, size, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block++) {
      const int64_t first = block * size, last = std::min(first + size, n);
      constexpr int64_t width = 16;  // sums side by side
      double sums[width] = {};
      int64_t i = first;
      for (; i + width <= last; i += width)
#pragma omp simd
        for (int64_t k = 0; k < width; k++)
          sums[k] += static_cast<double>(get(x[i + k])) * static_cast<double>(get(x[i + k]));
      for (; i < last; i++) sums[0] += static_cast<double>(get(x[i])) * static_cast<double>(get(x[i]));
      double sum = 0;
      for (double s : sums) sum += s;
      partial[static_cast<size_t>(block)] = sum;
    }
  });
  double sum = 0;
  for (int64_t block = 0; block < blocks; block++) sum += partial[static_cast<size_t>(block)];
  return sum;
}

template <bool stochastic, class T>
void add_momentum(Tensor m_, Tensor grad_, const UpdateState& state, const Rounding& rounding) {
  T* m = m_.data<T>();
  float* grad = grad_.data<float>();
  const auto scale = static_cast<float>(state.scale), c = static_cast<float>(1 - newton_schulz::momentum);
  parallel_for(grad_.numel(), 3, [=](int64_t begin, int64_t end) {
    // Each sum has one product, so that a compiler can fuse it in one way only: the bits of an element must not depend
    // on its place in the loop, which a layout decides.
    for (int64_t i = begin; i < end; i++) {
      const float g = grad[i], before = get(m[i]);
      const float mi = before + c * (scale * g - before);
      store_rounded<stochastic>(m[i], mi, rounding, i, 1);
      grad[i] = mi + c * (scale * g - mi);
    }
  });
}

template <bool stochastic, class T>
void move_by(Tensor master_, Tensor direction_, const Muon& muon, const Rounding& rounding) {
  T* p = master_.data<T>();
  const float* direction = direction_.data<float>();
  const auto decay = static_cast<float>(muon.weight_decay / muon.size),
             rate = static_cast<float>(muon.learning_rate * muon.size);
  parallel_for(master_.numel(), 3, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {  // one product a sum, as above
      const float before = get(p[i]);
      store_rounded<stochastic>(p[i], before - rate * (direction[i] + decay * before), rounding, i, 0);
    }
  });
}

template <bool whole_is_written>
void copy_columns(Tensor whole_, Tensor part_, const Columns& c) {
  with_f32_or_bf16(part_.dtype(), [&]<class T>(T) {
    T *whole = whole_.data<T>(), *part = part_.data<T>();
    parallel_for(part_.numel() / c.count, c.count, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++) {
        T *in_whole = whole + row * c.total + c.begin, *in_part = part + row * c.count;
        if constexpr (whole_is_written)
          std::copy(in_part, in_part + c.count, in_whole);
        else
          std::copy(in_whole, in_whole + c.count, in_part);
      }
    });
  });
}

}  // namespace

void run(Queue&, const MuonMomentum& op) {
  const UpdateState& state = update_state_of(op.state);
  if (!updates(state)) return;
  with_state_type(op.m.dtype(), op.rounding,
                  [&]<class T>(T, auto stochastic) { add_momentum<stochastic, T>(op.m, op.grad, state, op.rounding); });
}

void run(Queue&, const ScaleToUnitNorm& op) {
  with_f32_or_bf16(op.x.dtype(), [&]<class T>(T) {
    T* x = op.x.data<T>();
    const double norm = std::sqrt(square_sum_of(x, op.x.numel()));
    const auto factor = static_cast<float>(1 / std::max(norm, newton_schulz::smallest_norm));
    parallel_for(op.x.numel(), 1, [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; i++) put(x[i], factor * get(x[i]));
    });
  });
}

void run(Queue&, const NewtonSchulzPolynomial& op) {
  with_f32_or_bf16(op.y.dtype(), [&]<class T>(T) {
    T* y = op.y.data<T>();
    const T *a = op.a.data<T>(), *b = op.b.data<T>();
    const int64_t k = op.y.cols();
    const auto c0 = static_cast<float>(newton_schulz::c0), c1 = static_cast<float>(newton_schulz::c1),
               c2 = static_cast<float>(newton_schulz::c2);
    parallel_for(k, k, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++)
        for (int64_t i = row * k; i < (row + 1) * k; i++)
          put(y[i], c1 * get(a[i]) + c2 * get(b[i]) + (i == row * k + row ? c0 : 0.0f));
    });
  });
}

void run(Queue&, const PutColumns& op) { copy_columns<true>(op.whole, op.part, op.columns); }
void run(Queue&, const TakeColumns& op) { copy_columns<false>(op.whole, op.part, op.columns); }

void run(Queue&, const MuonUpdate& op) {
  if (!updates(update_state_of(op.state))) return;
  with_state_type(op.master.dtype(), op.rounding, [&]<class T>(T, auto stochastic) {
    move_by<stochastic, T>(op.master, op.direction, op.muon, op.rounding);
    if (op.working.empty()) return;
    with_compute_type(op.working.dtype(), [&]<class To>(To) {
      const T* from = op.master.data<T>();
      To* to = op.working.data<To>();
      parallel_for(op.master.numel(), 1, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) put(to[i], get(from[i]));
      });
    });
  });
}

}  // namespace megalith::cpu
