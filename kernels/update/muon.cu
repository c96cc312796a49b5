// Passes over memory: a thread takes four neighbours of every tensor. Muon's products are the library's.
#include <algorithm>

#include "kernels/loops/loops_cuda.h"
#include "kernels/update/decide_update.h"
#include "kernels/update/muon.h"

namespace megalith::cuda {

namespace {
using element_loop::threads;

bool in_fours(std::initializer_list<Tensor> tensors) {
  return std::ranges::all_of(tensors, [](const Tensor& t) { return aligned(t.raw(), 4 * size_of(t.dtype())); });
}
const UpdateState* update_state_of(const Tensor& state) {
  return reinterpret_cast<const UpdateState*>(state.data<double>());
}
__device__ inline bool updates(const UpdateState* state) {
  return state->decision == static_cast<double>(Decision::update);
}

// Stores a value in the state's type and returns the stored value.
template <bool stochastic, class T>
__device__ __forceinline__ T rounded(float value, const Rounding& rounding, int64_t i, size_t word) {
  if constexpr (stochastic) {
    bfloat16 drawn;
    drawn.bits = stochastic_bf16(value, rounding.words(i)[word]);
    return drawn;
  } else {
    return to<T>(value);
  }
}

template <class T, int n>
struct MomentumTerms {
  Vector<T, n> m;
  Vector<float, n> grad;
};
template <bool stochastic, class T, int n>
__global__ void __launch_bounds__(threads)
    momentum_kernel(T* m, float* grad, const UpdateState* state, int64_t count, float c, Rounding rounding) {
  if (!updates(state)) return;
  const float scale = static_cast<float>(state->scale);
  for_elements<n, 1>(
      count,
      [&](auto width, int64_t i) {
        return MomentumTerms<T, width>{load<width>(m + i), load<width>(grad + i)};
      },
      [&](auto width, int64_t i, auto& t) {
        for (int k = 0; k < width; k++) {
          const float g = t.grad[k], before = to_float(t.m[k]);
          const float mi = before + c * (scale * g - before);
          t.m[k] = rounded<stochastic, T>(mi, rounding, i + k, 1);
          t.grad[k] = mi + c * (scale * g - mi);
        }
        store(m + i, t.m);
        store(grad + i, t.grad);
      });
}

template <class T>
__global__ void __launch_bounds__(threads) square_sum_kernel(double* partial, const T* x, int64_t count) {
  double sum = 0;
#pragma unroll 8
  for (int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x; i < count; i += int64_t{gridDim.x} * threads) {
    const double v = to_float(x[i]);
    sum += v * v;
  }
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
// partial[0] becomes 1 / max(the root of the sum of all, smallest).
__global__ void __launch_bounds__(threads) norm_kernel(double* partial, int count, double smallest) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) sum += partial[i];
  sum = block_sum<threads>(sum);
  if (threadIdx.x != 0) return;
  const double norm = sqrt(sum);
  partial[0] = 1 / (norm > smallest || norm != norm ? norm : smallest);
}
template <class T, int n>
__global__ void __launch_bounds__(threads) scale_kernel(T* x, const double* factor, int64_t count) {
  const float f = static_cast<float>(*factor);
  for_elements<n, 1>(
      count, [&](auto width, int64_t i) { return load<width>(x + i); },
      [&](auto width, int64_t i, auto& values) {
        for (int k = 0; k < width; k++) values[k] = to<T>(f * to_float(values[k]));
        store(x + i, values);
      });
}

template <class T, int n>
struct PolynomialTerms {
  Vector<T, n> a, b;
};
template <class T, int n>
__global__ void __launch_bounds__(threads)
    polynomial_kernel(T* y, const T* a, const T* b, int64_t k, float c0, float c1, float c2) {
  for_elements<n, 1>(
      k * k,
      [&](auto width, int64_t i) {
        return PolynomialTerms<T, width>{load<width>(a + i), load<width>(b + i)};
      },
      [&](auto width, int64_t i, const auto& t) {
        Vector<T, width> result;
        for (int j = 0; j < width; j++) {
          const bool diagonal = (i + j) / k == (i + j) % k;
          result[j] = to<T>(c1 * to_float(t.a[j]) + c2 * to_float(t.b[j]) + (diagonal ? c0 : 0.0f));
        }
        store(y + i, result);
      });
}

template <class T, bool whole_is_written>
__global__ void __launch_bounds__(threads) columns_kernel(T* whole, T* part, int64_t count, Columns c) {
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= count) return;
  if constexpr (whole_is_written)
    whole[place_in_whole(c, i)] = part[i];
  else
    part[i] = whole[place_in_whole(c, i)];
}
template <bool whole_is_written>
void copy_columns(Queue queue, const char* name, const Tensor& whole, const Tensor& part, const Columns& c) {
  const int64_t count = part.numel();
  if (count == 0) return;
  const auto copy_as = [&]<class T>(T) {
    launch(queue, {name, blocks_for(count, threads), threads}, columns_kernel<T, whole_is_written>,
           static_cast<T*>(whole.raw()), static_cast<T*>(part.raw()), count, c);
  };
  if (size_of(part.dtype()) == 2)
    copy_as(uint16_t{});
  else
    copy_as(uint32_t{});
}

template <class T, int n>
struct UpdateTerms {
  Vector<T, n> p;
  Vector<float, n> direction;
};
template <bool stochastic, class T, class W, int n>
__global__ void __launch_bounds__(threads)
    move_kernel(T* p, W* working, const float* direction, const UpdateState* state, int64_t count, float decay,
                float rate, Rounding rounding) {
  if (!updates(state)) return;
  for_elements<n, 1>(
      count,
      [&](auto width, int64_t i) {
        return UpdateTerms<T, width>{load<width>(p + i), load<width>(direction + i)};
      },
      [&](auto width, int64_t i, auto& t) {
        Vector<W, width> copy;
        for (int k = 0; k < width; k++) {
          const float before = to_float(t.p[k]);
          t.p[k] = rounded<stochastic, T>(before - rate * (t.direction[k] + decay * before), rounding, i + k, 0);
          copy[k] = to<W>(to_float(t.p[k]));
        }
        store(p + i, t.p);
        if (working) store(working + i, copy);
      });
}
}  // namespace

void run(Queue queue, const MuonMomentum& op) {
  const int64_t count = op.m.numel();
  if (count == 0) return;
  const auto c = static_cast<float>(1 - newton_schulz::momentum);
  with_state_type(op.m.dtype(), op.rounding, [&]<class T>(T, auto stochastic) {
    with_width<4>(in_fours({op.m, op.grad}), [&](auto n) {
      launch(queue, {op.name, element_grid(count, n, 1), threads}, momentum_kernel<stochastic, T, n>, op.m.data<T>(),
             op.grad.data<float>(), update_state_of(op.state), count, c, op.rounding);
    });
  });
}

void run(Queue queue, const ScaleToUnitNorm& op) {
  const int64_t count = op.x.numel();
  if (count == 0) return;
  double* const partial = static_cast<double*>(queue.workspace);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(1056, ceil_div(count, int64_t{threads} * 8)));
  with_f32_or_bf16(op.x.dtype(), [&]<class T>(T) {
    launch(queue, {op.name, blocks, threads}, square_sum_kernel<T>, partial, op.x.data<T>(), count);
    launch(queue, {op.name, 1, threads}, norm_kernel, partial, static_cast<int>(blocks), newton_schulz::smallest_norm);
    with_width<4>(in_fours({op.x}), [&](auto n) {
      launch(queue, {op.name, element_grid(count, n, 1), threads}, scale_kernel<T, n>, op.x.data<T>(), partial, count);
    });
  });
}

void run(Queue queue, const NewtonSchulzPolynomial& op) {
  const int64_t k = op.y.cols();
  if (k == 0) return;
  with_f32_or_bf16(op.y.dtype(), [&]<class T>(T) {
    with_width<4>(in_fours({op.y, op.a, op.b}), [&](auto n) {
      launch(queue, {op.name, element_grid(k * k, n, 1), threads}, polynomial_kernel<T, n>, op.y.data<T>(),
             op.a.data<T>(), op.b.data<T>(), k, static_cast<float>(newton_schulz::c0),
             static_cast<float>(newton_schulz::c1), static_cast<float>(newton_schulz::c2));
    });
  });
}

void run(Queue queue, const PutColumns& op) { copy_columns<true>(queue, op.name, op.whole, op.part, op.columns); }
void run(Queue queue, const TakeColumns& op) { copy_columns<false>(queue, op.name, op.whole, op.part, op.columns); }

void run(Queue queue, const MuonUpdate& op) {
  const int64_t count = op.master.numel();
  if (count == 0) return;
  const auto decay = static_cast<float>(op.muon.weight_decay / op.muon.size),
             rate = static_cast<float>(op.muon.learning_rate * op.muon.size);
  with_state_type(op.master.dtype(), op.rounding, [&]<class T>(T, auto stochastic) {
    with_compute_type(op.working.empty() ? DType::f32 : op.working.dtype(), [&]<class W>(W) {
      with_width<4>(in_fours({op.master, op.working, op.direction}), [&](auto n) {
        launch(queue, {op.name, element_grid(count, n, 1), threads}, move_kernel<stochastic, T, W, n>,
               op.master.data<T>(), op.working.empty() ? nullptr : op.working.data<W>(), op.direction.data<float>(),
               update_state_of(op.state), count, decay, rate, op.rounding);
      });
    });
  });
}

}  // namespace megalith::cuda
