// The update in one pass: a thread takes four neighbours of every tensor. The decision on one block.
#include "kernels/adamw.h"
#include "kernels/loops_cuda.h"

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

UpdateState* state_of(const Tensor& t) { return reinterpret_cast<UpdateState*>(t.data<double>()); }

// v of all threads of the block, in every thread.
constexpr int deciders = 128;  // threads
__device__ inline double block_sum(double v) {
  __shared__ double room[deciders / warp_size];
  for (int bits = warp_size / 2; bits > 0; bits /= 2) v += shuffle_xor(v, bits);
  if (lane_index() == 0) room[warp_index()] = v;
  sync_threads();
  double sum = 0;
  for (int w = 0; w < deciders / warp_size; w++) sum += room[w];
  return sum;
}

// In every thread; 0 where there are not enough. Each thread finds the rank of its norm, equal ones in their order.
static_assert(deciders == UpdateState::window);
__device__ inline double median_of_norms(const UpdateState& state) {
  __shared__ double middle[2];
  const int written = static_cast<int>(state.num_norms < deciders ? state.num_norms : deciders);
  if (written < UpdateState::enough) return 0;
  if (const int i = static_cast<int>(threadIdx.x); i < written) {
    const double mine = state.norms[i];
    int before = 0;
    for (int k = 0; k < written; k++) before += state.norms[k] < mine || (state.norms[k] == mine && k < i);
    if (before == (written - 1) / 2) middle[0] = mine;
    if (before == written / 2) middle[1] = mine;
  }
  sync_threads();
  return (middle[0] + middle[1]) / 2;
}

__global__ void __launch_bounds__(deciders)
    decide_kernel(UpdateState* state, const double* sums, int64_t parts, UpdateRules rules, double learning_rate,
                  double beta1, double beta2) {
  const double median = rules.skip_above > 0 ? median_of_norms(*state) : 0;
  double square_sum = 0;
  for (int64_t i = threadIdx.x; i < parts; i += deciders) square_sum += sums[i];
  const double norm = sqrt(block_sum(square_sum));
  if (threadIdx.x != 0) return;
  state->norm = norm;
  state->median = median;
  if (!decide(*state, rules, sums[parts])) return;
  state->rate = learning_rate / (1 - pow(beta1, state->updates));
  state->root = 1 / (1 - pow(beta2, state->updates));
}

template <int n>
struct State {
  Vector<float, n> p, m, v, grad;
};

// working may be null.
template <class T, int n>
__global__ void __launch_bounds__(threads) update_kernel(float* p, float* m, float* v, T* working, const float* grad,
                                                         const UpdateState* state, int64_t count, Rates r) {
  if (state->decision != static_cast<double>(Decision::update)) return;
  const float scale = static_cast<float>(state->scale), rate = static_cast<float>(state->rate),
              root = static_cast<float>(state->root);
  for_elements<n, 1>(
      count,
      [&](auto width, int64_t i) {
        return State<width>{load<width>(p + i), load<width>(m + i), load<width>(v + i), load_once<width>(grad + i)};
      },
      [&](auto width, int64_t i, auto& s) {
        Vector<T, width> rounded;
        for (int k = 0; k < width; k++) {
          const float g = scale * s.grad[k];
          s.m[k] = r.b1 * s.m[k] + r.c1 * g;
          s.v[k] = r.b2 * s.v[k] + r.c2 * (g * g);
          s.p[k] = r.keep * s.p[k] - rate * s.m[k] / (sqrtf(s.v[k] * root) + r.epsilon);
          rounded[k] = to<T>(s.p[k]);
        }
        store(p + i, s.p);
        store(m + i, s.m);
        store(v + i, s.v);
        if (working) store(working + i, rounded);
      });
}
}  // namespace

void decide_update(Queue queue, Tensor state, Tensor sums, const UpdateRules& rules, const AdamW& a) {
  launch(queue, {"decide_update", 1, deciders}, decide_kernel, state_of(state), sums.data<double>(), sums.numel() - 1,
         rules, a.learning_rate, a.beta1, a.beta2);
}

void adamw_update(Queue queue, Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor state,
                  const AdamW& a) {
  const int64_t count = master.numel();
  if (count == 0) return;
  with_compute_type(working.empty() ? DType::f32 : working.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* rounded = working.empty() ? nullptr : working.data<T>();
    const bool vectors = aligned(master.raw()) && aligned(m.raw()) && aligned(v.raw()) && aligned(grad.raw()) &&
                         aligned(rounded, 4 * sizeof(T));
    const int n = vectors ? 4 : 1;
    launch(queue, {"adamw_update", element_grid(count, n, 1), threads},
           vectors ? update_kernel<T, 4> : update_kernel<T, 1>, master.data<float>(), m.data<float>(), v.data<float>(),
           rounded, grad.data<float>(), state_of(state), count, rates_of(a));
  });
}

}  // namespace megalith::cuda
