// AdamW in one pass: a thread updates four neighbours of every tensor. The op is bound by memory, so one kernel
// branches on the types of the state at run time.
#include "kernels/loops/loops_cuda.h"
#include "kernels/update/adamw.h"
#include "kernels/update/decide_update.h"

namespace megalith::cuda {

namespace {
using element_loop::threads;

struct Rates {
  float b1, b2, c1, c2, keep, epsilon;
};
Rates rates_of(const AdamW& a) {
  const auto f32 = [](double v) { return static_cast<float>(v); };
  return {.b1 = f32(a.beta1),
          .b2 = f32(a.beta2),
          .c1 = f32(1 - a.beta1),
          .c2 = f32(1 - a.beta2),
          .keep = f32(1 - a.learning_rate * a.weight_decay),
          .epsilon = f32(a.epsilon)};
}

struct Floats {
  void* data;
  DType type;
};
Floats floats_of(const Tensor& t) { return {t.raw(), t.dtype()}; }

template <class T, int n>
__device__ Vector<float, n> load_as(const Floats& f, int64_t i) {
  const Vector<T, n> from = load<n>(static_cast<const T*>(f.data) + i);
  Vector<float, n> v;
  for (int k = 0; k < n; k++) v[k] = to_float(from[k]);
  return v;
}
template <int n>
__device__ Vector<float, n> load_floats(const Floats& f, int64_t i) {
  return f.type == DType::bf16 ? load_as<bfloat16, n>(f, i) : load_as<float, n>(f, i);
}
template <class T, int n>
__device__ void store_as(const Floats& f, int64_t i, const Vector<float, n>& v) {
  Vector<T, n> rounded;
  for (int k = 0; k < n; k++) rounded[k] = to<T>(v[k]);
  store(static_cast<T*>(f.data) + i, rounded);
}
template <int n>
__device__ void store_floats(const Floats& f, int64_t i, const Vector<float, n>& v) {
  switch (f.type) {
    case DType::bf16: return store_as<bfloat16>(f, i, v);
    case DType::f16: return store_as<float16>(f, i, v);
    default: return store_as<float>(f, i, v);
  }
}

// Stores p, m and v. Stochastic rounding leaves the bf16 values in v, from which the working copy is made.
template <bool stochastic, int n>
__device__ void store_state(const Floats (&state)[3], int64_t i, Vector<float, n> (&v)[3], const Rounding& rounding) {
  if constexpr (stochastic)
    for (int k = 0; k < n; k++) {
      const PhiloxBlock words = rounding.words(i + k);
      for (int j = 0; j < 3; j++)
        if (state[j].type == DType::bf16) {
          bfloat16 drawn;
          drawn.bits = stochastic_bf16(v[j][k], words[static_cast<size_t>(j)]);
          v[j][k] = to_float(drawn);
        }
    }
  for (int j = 0; j < 3; j++) store_floats(state[j], i, v[j]);
}

template <int n>
struct State {
  Vector<float, n> of[3], grad;
};

// `working.data` may be null.
template <bool stochastic, int n>
__global__ void __launch_bounds__(threads)
    update_kernel(Floats p, Floats m, Floats v, Floats working, const float* grad, const UpdateState* state,
                  int64_t count, Rates r, Rounding rounding) {
  if (state->decision != static_cast<double>(Decision::update)) return;
  const Floats all[3] = {p, m, v};
  const float scale = static_cast<float>(state->scale), rate = static_cast<float>(state->rate),
              root = static_cast<float>(state->root);
  for_elements<n, 1>(
      count,
      [&](auto width, int64_t i) {
        return State<width>{{load_floats<width>(p, i), load_floats<width>(m, i), load_floats<width>(v, i)},
                            load_once<width>(grad + i)};
      },
      [&](auto width, int64_t i, auto& s) {
        for (int k = 0; k < width; k++) {
          const float g = scale * s.grad[k];
          float &pi = s.of[0][k], &mi = s.of[1][k], &vi = s.of[2][k];
          mi = r.b1 * mi + r.c1 * g;
          vi = r.b2 * vi + r.c2 * (g * g);
          pi = r.keep * pi - rate * mi / (sqrtf(vi * root) + r.epsilon);
        }
        store_state<stochastic>(all, i, s.of, rounding);
        if (!working.data) return;
        if (p.type == DType::bf16)
          for (int k = 0; k < width; k++) s.of[0][k] = to_float(to<bfloat16>(s.of[0][k]));
        store_floats(working, i, s.of[0]);
      });
}
}  // namespace

void run(Queue queue, const AdamWUpdate& op) {
  const int64_t count = op.master.numel();
  if (count == 0) return;
  bool vectors = true;
  for (const Tensor& t : {op.master, op.m, op.v, op.working, op.grad})
    vectors = vectors && aligned(t.raw(), 4 * size_of(t.dtype()));
  const auto kernel = [&] {
    if (op.rounding.stochastic) return vectors ? update_kernel<true, 4> : update_kernel<true, 1>;
    return vectors ? update_kernel<false, 4> : update_kernel<false, 1>;
  }();
  launch(queue, {op.name, element_grid(count, vectors ? 4 : 1, 1), threads}, kernel, floats_of(op.master),
         floats_of(op.m), floats_of(op.v), floats_of(op.working), op.grad.data<float>(),
         reinterpret_cast<const UpdateState*>(op.state.data<double>()), count, rates_of(op.adamw), op.rounding);
}

}  // namespace megalith::cuda
