// Forward: a warp per row. Backward: rows are sorted by token and summed in chunks of that order. A token whose rows
// are in several chunks has a partial sum from each, and these are added in order. Positions need no sort if every
// sequence has each position once: the rows of a position are T apart. With a document mask the rows are sorted by
// position as well.
#include <algorithm>
#include <cmath>

#include "kernels/embedding/embedding.h"
#include "kernels/loops/device_cuda.h"

namespace megalith::cuda {

namespace {
constexpr int threads = 256, warps = threads / warp_size;

__device__ inline int64_t position_of(int64_t row, const int32_t* starts, int64_t length) {
  return row % length - (starts ? starts[row] : 0);
}

template <class T, class R, int n>
__global__ void __launch_bounds__(threads)
    forward_kernel(R* y, const int32_t* tokens, const T* wte, const T* wpe, const int32_t* starts, int64_t N, int64_t C,
                   int64_t length, VocabularyPart part) {
  const int64_t row = int64_t{blockIdx.x} * warps + warp_index();
  if (row >= N) return;
  const int64_t token = tokens[row], table_row = part.index_of(token);
  R* to_row = y + row * C;
  if (table_row < 0) {
    Vector<R, n> nothing;
    for (int k = 0; k < n; k++) nothing[k] = to<R>(part.exists(token) ? 0.0f : NAN);
    for (int64_t c = lane_index() * n; c < C; c += warp_size * n) store(to_row + c, nothing);
    return;
  }
  const T *from = wte + table_row * C, *position = wpe ? wpe + position_of(row, starts, length) * C : nullptr;
  constexpr int steps = 4;
  for (int64_t first = lane_index() * n; first < C; first += steps * warp_size * n) {
    Vector<T, n> a[steps], b[steps];
#pragma unroll
    for (int step = 0; step < steps; step++)
      if (const int64_t c = first + step * warp_size * n; c < C) {
        a[step] = load<n>(from + c);
        b[step] = load_or_zeros<n>(position, c);
      }
#pragma unroll
    for (int step = 0; step < steps; step++)
      if (const int64_t c = first + step * warp_size * n; c < C) {
        Vector<R, n> sum;
        for (int k = 0; k < n; k++) sum[k] = to<R>(to_float(a[step][k]) + to_float(b[step][k]));
        store(to_row + c, sum);
      }
  }
}

// --- Rows sorted by token or position.

struct Keyed {
  int32_t key, row;  // key: the token's row of the table (part.count if it is not held), or the position
};

constexpr int sort_threads = 1024, sort_warps = sort_threads / warp_size, digit_bits = 8, digits = 1 << digit_bits;

// Returns the lanes of `among` with the same digit.
__device__ inline unsigned peers_of(int digit, unsigned among) {
  unsigned peers = among;
  for (int bit = 0; bit < digit_bits; bit++) {
    const unsigned ones = ballot(digit >> bit & 1);
    peers &= digit >> bit & 1 ? ones : ~ones;
  }
  return peers;
}
__device__ constexpr int count_bits(unsigned v) {
  v -= v >> 1 & 0x55555555u;
  v = (v & 0x33333333u) + (v >> 2 & 0x33333333u);
  return static_cast<int>(((v + (v >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24);
}

// One pass of a stable radix sort by one block: y is x sorted by (key >> shift) % digits. Each warp counts the digits
// of its section of x, learns where each begins in y, and copies its elements there.
__device__ inline void sort_pass(Keyed* y, const Keyed* x, int64_t N, int shift, int (&places)[sort_warps][digits],
                                 int (&totals)[digits]) {
  const int lane = lane_index(), warp = warp_index();
  int(&mine)[digits] = places[warp];
  for (int digit = lane; digit < digits; digit += warp_size) mine[digit] = 0;
  sync_warp();
  const int64_t each = ceil_div(ceil_div(N, warp_size), sort_warps) * warp_size;
  const int64_t begin = warp * each, end = begin + each < N ? begin + each : N;
  for (int turn = 0; turn < 2; turn++) {
    const bool placing = turn == 1;
    for (int64_t first = begin; first < end; first += warp_size) {
      const int64_t i = first + lane;
      const bool has = i < end;
      const Keyed element = has ? x[i] : Keyed{0, 0};
      const int digit = element.key >> shift & (digits - 1);
      const unsigned peers = peers_of(digit, ballot(has));
      const int before = count_bits(peers & ((1u << lane) - 1));
      const int place = mine[digit];
      sync_warp();
      if (has && before == 0) mine[digit] = place + count_bits(peers);
      if (has && placing) y[place + before] = element;
      sync_warp();
    }
    if (placing) break;
    // Turn counts into offsets: digits in order, and within a digit the warps.
    sync_threads();
    if (threadIdx.x < digits) {
      int total = 0;
      for (int w = 0; w < sort_warps; w++) {
        const int count = places[w][threadIdx.x];
        places[w][threadIdx.x] = total;
        total += count;
      }
      totals[threadIdx.x] = total;
    }
    sync_threads();
    if (threadIdx.x < digits) {
      int smaller = 0;
      for (int digit = 0; digit < static_cast<int>(threadIdx.x); digit++) smaller += totals[digit];
      for (int w = 0; w < sort_warps; w++) places[w][threadIdx.x] += smaller;
    }
    sync_threads();
  }
}

// Sorts the rows by token, or by position if `starts` is not null, stably. One block; `spare` also holds N.
__global__ void __launch_bounds__(sort_threads)
    sort_kernel(Keyed* sorted, Keyed* spare, const int32_t* tokens, const int32_t* starts, int64_t N, int64_t length,
                int passes, VocabularyPart part) {
  __shared__ int places[sort_warps][digits], totals[digits];
  // An odd number of passes ends in the other buffer.
  Keyed *from = passes % 2 ? spare : sorted, *into = passes % 2 ? sorted : spare;
  for (int64_t n = threadIdx.x; n < N; n += sort_threads) {
    const int64_t row = starts ? position_of(n, starts, length) : part.index_of(tokens[n]);
    from[n] = {static_cast<int32_t>(row < 0 ? part.count : row), static_cast<int32_t>(n)};
  }
  for (int pass = 0; pass < passes; pass++) {
    sync_threads();
    sort_pass(into, from, N, pass * digit_bits, places, totals);
    Keyed* const last = into;
    into = from;
    from = last;
  }
}

// to[0, n) += sum.
template <int n>
__device__ void add_to(float* to, const Vector<float, n>& sum) {
  Vector<float, n> v = load<n>(to);
  for (int k = 0; k < n; k++) v[k] += sum[k];
  store(to, v);
}

// Block (strip, chunk) sums the chunk's tokens. A token with rows in this chunk only is added to dwte; one from an
// earlier chunk goes to row 2 * chunk of `partial`, and one that continues in the next chunk to row 2 * chunk + 1.
constexpr int sum_threads = 128;
template <class T, int n>
__global__ void __launch_bounds__(sum_threads)
    token_sums_kernel(float* dwte, float* partial, const T* dy, const Keyed* sorted, int64_t N, int64_t C,
                      int64_t chunk, int32_t none) {
  const int64_t c = (int64_t{blockIdx.x} * sum_threads + threadIdx.x) * n;
  const int64_t begin = int64_t{blockIdx.y} * chunk, end = begin + chunk < N ? begin + chunk : N;
  if (c >= C) return;
  const int32_t before = begin > 0 ? sorted[begin - 1].key : -1, after = end < N ? sorted[end].key : -1;
  Vector<float, n> sum;
  for (int k = 0; k < n; k++) sum[k] = 0;
  constexpr int steps = 8;
  for (int64_t first = begin; first < end; first += steps) {
    Keyed at[steps];
    Vector<T, n> d[steps];
#pragma unroll
    for (int step = 0; step < steps; step++)
      if (first + step < end) {
        at[step] = sorted[first + step];
        if (at[step].key != none) d[step] = load_once<n>(dy + at[step].row * C + c);
      }
#pragma unroll
    for (int step = 0; step < steps; step++) {
      if (first + step >= end) continue;
      const int32_t key = at[step].key;
      if (key == none) return;  // this token is not held, and neither is any after it
      for (int k = 0; k < n; k++) sum[k] += to_float(d[step][k]);
      const bool last = first + step + 1 == end;
      if (!last && sorted[first + step + 1].key == key) continue;
      if (key == before) {
        store(partial + 2 * int64_t{blockIdx.y} * C + c, sum);
      } else if (last && key == after) {
        store(partial + (2 * int64_t{blockIdx.y} + 1) * C + c, sum);
      } else {
        add_to(dwte + key * C + c, sum);
      }
      for (int k = 0; k < n; k++) sum[k] = 0;
    }
  }
}

// Block (strip, chunk) adds up the token that begins in this chunk and continues, if there is one.
template <int n>
__global__ void __launch_bounds__(sum_threads)
    finish_token_sums_kernel(float* dwte, const float* partial, const Keyed* sorted, int64_t N, int64_t C,
                             int64_t chunk, int32_t none) {
  const int64_t c = (int64_t{blockIdx.x} * sum_threads + threadIdx.x) * n;
  const int64_t begin = int64_t{blockIdx.y} * chunk, end = begin + chunk;
  if (c >= C || end >= N) return;
  const int32_t key = sorted[end - 1].key;
  if (key == none || sorted[end].key != key || (begin > 0 && sorted[begin - 1].key == key)) return;
  Vector<float, n> sum = load<n>(partial + (2 * int64_t{blockIdx.y} + 1) * C + c);
  for (int64_t next = int64_t{blockIdx.y} + 1; next * chunk < N && sorted[next * chunk].key == key; next++) {
    const Vector<float, n> more = load<n>(partial + 2 * next * C + c);
    for (int k = 0; k < n; k++) sum[k] += more[k];
  }
  add_to(dwte + key * C + c, sum);
}

// dwpe[t] += the rows of position t, in order.
template <class T, int n>
__global__ void __launch_bounds__(threads)
    position_sums_kernel(float* dwpe, const T* dy, int64_t N, int64_t C, int64_t length) {
  const int64_t i = (int64_t{blockIdx.x} * threads + threadIdx.x) * n;  // this thread's columns in the first sequence
  if (i >= length * C) return;
  Vector<float, n> sum;
  for (int k = 0; k < n; k++) sum[k] = 0;
  constexpr int steps = 8;
  for (int64_t first = i; first < N * C; first += steps * length * C) {
    Vector<T, n> d[steps];
#pragma unroll
    for (int step = 0; step < steps; step++)
      if (const int64_t at = first + step * length * C; at < N * C) d[step] = load<n>(dy + at);
#pragma unroll
    for (int step = 0; step < steps; step++)
      if (first + step * length * C < N * C)
        for (int k = 0; k < n; k++) sum[k] += to_float(d[step][k]);
  }
  add_to(dwpe + i, sum);
}

// Returns the first sorted row whose key is at least `key`.
__device__ inline int64_t first_of(const Keyed* sorted, int64_t N, int64_t key) {
  int64_t begin = 0, end = N;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (sorted[middle].key < key)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

// As above for any number of rows at a position. `sorted` is sorted by position.
template <class T, int n>
__global__ void __launch_bounds__(threads)
    document_position_sums_kernel(float* dwpe, const T* dy, const Keyed* sorted, int64_t N, int64_t C, int64_t length) {
  const int64_t i = (int64_t{blockIdx.x} * threads + threadIdx.x) * n, position = i / C;
  if (i >= length * C) return;
  Vector<float, n> sum;
  for (int k = 0; k < n; k++) sum[k] = 0;
  for (int64_t at = first_of(sorted, N, position); at < N && sorted[at].key == position; at++) {
    const Vector<T, n> d = load<n>(dy + sorted[at].row * C + i % C);
    for (int k = 0; k < n; k++) sum[k] += to_float(d[k]);
  }
  add_to(dwpe + i, sum);
}
}  // namespace

void run(Queue queue, const EmbeddingForward& op) {
  const int64_t N = op.y.rows(), C = op.y.cols();
  if (N * C == 0) return;
  with_residual_types(op.wte.dtype(), op.y.dtype(), [&]<class E, class R>(E, R) {
    launch(queue, {op.name, blocks_for(N, warps), threads},
           in_vectors({op.y, op.wte, op.wpe}) ? forward_kernel<E, R, 16 / sizeof(R)> : forward_kernel<E, R, 1>,
           op.y.data<R>(), op.tokens.data<int32_t>(), op.wte.data<E>(), op.wpe.data_or_null<E>(),
           op.starts.empty() ? nullptr : op.starts.data<int32_t>(), N, C, op.T, op.part);
  });
}

void run(Queue queue, const EmbeddingBackward& op) {
  const int64_t N = op.dy.rows(), C = op.dy.cols();
  if (N * C == 0) return;
  CHECK(op.part.count < int64_t{1} << 31, "{}: a part of {} tokens is beyond 32 bits", op.name, op.part.count);
  // The workspace holds two lists of rows, and two partial sums for each chunk.
  const int64_t list_bytes = ceil_div(N * static_cast<int64_t>(sizeof(Keyed)), 16) * 16;
  const int64_t most_chunks = (workspace_bytes - 2 * list_bytes) / (2 * C * static_cast<int64_t>(sizeof(float)));
  CHECK(most_chunks > 0, "{}: {} rows of {} do not fit into the workspace of {} bytes; use a smaller microbatch",
        op.name, N, C, workspace_bytes);
  char* workspace = static_cast<char*>(queue.workspace);
  auto* sorted = reinterpret_cast<Keyed*>(workspace);
  auto* spare = reinterpret_cast<Keyed*>(workspace + list_bytes);
  auto* partial = reinterpret_cast<float*>(workspace + 2 * list_bytes);
  const int64_t chunk = std::max({int64_t{32}, ceil_div(N, most_chunks), ceil_div(N, 65535)});
  const auto chunks = static_cast<unsigned>(ceil_div(N, chunk));
  const auto passes_for = [](int64_t largest) {
    int passes = 0;
    while (largest >> (passes * digit_bits) != 0) passes++;
    return passes;
  };

  float *dwte = op.dwte.data_or_null<float>(), *dwpe = op.dwpe.data_or_null<float>();
  const auto none = static_cast<int32_t>(op.part.count);
  const bool has_tokens = dwte && op.part.count > 0;
  if (has_tokens) {
    launch(queue, {op.name, 1, sort_threads}, sort_kernel, sorted, spare, op.tokens.data<int32_t>(), nullptr, N, op.T,
           passes_for(op.part.count), op.part);
  }
  with_compute_type(op.dy.dtype(), [&](auto tag) {
    using E = decltype(tag);
    const E* dy = op.dy.data<E>();
    with_width<16 / sizeof(E)>(in_vectors({op.dwte, op.dwpe, op.dy}), [&](auto n) {
      if (has_tokens) {
        const dim3 grid(blocks_for(C, sum_threads * n), chunks);
        launch(queue, {op.name, grid, sum_threads}, token_sums_kernel<E, n>, dwte, partial, dy, sorted, N, C, chunk,
               none);
        launch(queue, {op.name, grid, sum_threads}, finish_token_sums_kernel<n>, dwte, partial, sorted, N, C, chunk,
               none);
      }
      if (!dwpe) return;
      const Launch of_positions{op.name, blocks_for(op.T * C, threads * n), threads};
      if (op.starts.empty()) return launch(queue, of_positions, position_sums_kernel<E, n>, dwpe, dy, N, C, op.T);
      launch(queue, {op.name, 1, sort_threads}, sort_kernel, sorted, spare, nullptr, op.starts.data<int32_t>(), N, op.T,
             passes_for(op.T - 1), op.part);
      launch(queue, of_positions, document_position_sums_kernel<E, n>, dwpe, dy, sorted, N, C, op.T);
    });
  });
}

}  // namespace megalith::cuda
