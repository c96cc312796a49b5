#include "tests/simt/faults.h"

#include <stdexcept>

#include "kernels/loops/device_cuda.h"

namespace megalith::test {

using namespace cuda;

namespace {
__global__ void reduction(float* y, const float* x, int) {
  __shared__ float sums[2];
  const float sum = warp_sum(x[blockIdx.x * 64 + threadIdx.x]);
  if (lane_index() == 0) sums[warp_index()] = sum;
  sync_threads();
  if (threadIdx.x == 0) y[blockIdx.x] = sums[0] + sums[1];
}
__global__ void divergent_barrier(float* y, const float* x, int) {
  if (threadIdx.x == 3) return;
  sync_threads();
  y[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
}
__global__ void two_barriers(float* y, const float* x, int) {
  if (threadIdx.x < 32) {
    sync_threads();
  } else {
    sync_threads();
  }
  y[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
}
__global__ void missing_lane(float* y, const float* x, int n) {
  if (threadIdx.x == 32u + n) return;
  y[blockIdx.x * 64 + threadIdx.x] = shuffle_xor(x[threadIdx.x], 1);
}
__global__ void all_threads_throw(float*, const float*, int) { throw std::runtime_error("thrown by all"); }
__global__ void lane_of_no_mask(float* y, const float* x, int) {
  if (threadIdx.x % 32 < 16) y[blockIdx.x * 64 + threadIdx.x] = shuffle(x[threadIdx.x], 20, 0xffff);
}
__global__ void unwritten_shared(float* y, const float*, int) {
  __shared__ float room[64];
  if (threadIdx.x != 5) room[threadIdx.x] = 1;
  sync_threads();
  y[blockIdx.x * 64 + threadIdx.x] = room[threadIdx.x];
}
__global__ void unwritten_dynamic(float* y, const float*, int) {
  y[blockIdx.x * 64 + threadIdx.x] = shared_memory<float>()[threadIdx.x];
}
__global__ void beyond_dynamic(float*, const float*, int n) { shared_memory<float>()[threadIdx.x + n] = 1; }
__global__ void beyond_tensor(float* y, const float* x, int) {
  y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x + 1];
}
__global__ void before_tensor(float* y, const float*, int) { y[int64_t{threadIdx.x} - 1] = 0; }
__global__ void beyond_array(float* y, const float*, int n) {
  __shared__ float room[32];
  if (threadIdx.x < 32) return;
  room[static_cast<int>(threadIdx.x) - 32 + (threadIdx.x == 40 ? n : 0)] = 1;
  y[threadIdx.x] = room[threadIdx.x - 32];
}
__global__ void writes_input(float*, const float* x, int) {
  if (threadIdx.x == 9) const_cast<float*>(x)[0] = 1;
}
__global__ void unwritten_tensor(float* y, const float*, int) { y[blockIdx.x * 64 + threadIdx.x] += 1; }
// Here the compiler does not know the number of bytes.
__global__ void copies_unwritten(float* y, const float*, int n) {
  if (threadIdx.x == 7) std::memcpy(y, y + 64, static_cast<size_t>(n));
}
__global__ void moves_beyond(float* y, const float* x, int n) {
  if (threadIdx.x == 7) std::memmove(y + 4, x, static_cast<size_t>(n));
}
__global__ void sets_input(float*, const float* x, int n) {
  if (threadIdx.x == 7) std::memset(const_cast<float*>(x), 0, static_cast<size_t>(n));
}
__global__ void copies(float* y, const float* x, int n) {
  const auto bytes = static_cast<size_t>(n);
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    std::memset(y, 0, bytes);
    std::memcpy(y + 64, x, bytes);
    std::memmove(y + 96, y + 64, bytes);
    y[255] = y[159];
  }
}
__global__ void race_in_block(float* y, const float* x, int) {
  __shared__ float room[64];
  room[threadIdx.x] = x[threadIdx.x];
  y[blockIdx.x * 64 + threadIdx.x] = room[threadIdx.x / 2];
}
__global__ void race_after_read(float* y, const float* x, int) {
  __shared__ float room[64];
  room[threadIdx.x] = x[threadIdx.x];
  sync_threads();
  y[blockIdx.x * 64 + threadIdx.x] = room[threadIdx.x ^ 32];
  if (threadIdx.x >= 32) room[threadIdx.x] = 0;
}
__global__ void race_of_blocks(float* y, const float*, int) {
  if (threadIdx.x == 0) y[0] = 1;
}
// Block 0 hands what it made of x on to block 1, by a flag in y's last element: one at a time something is wrong.
enum class Handing { right, released_before_the_barrier, used_before_the_barrier, never_released };
template <Handing how>
__device__ void hand_on(float* y, const float* x, bool gives) {
  auto* flag = reinterpret_cast<int32_t*>(y + 255);
  const bool teller = threadIdx.x == 0;
  if (gives) y[threadIdx.x] = 2 * x[threadIdx.x];
  if (how != Handing::released_before_the_barrier) sync_threads();
  if (gives && teller) release(flag, how == Handing::never_released ? 1 : 2);
  if (!gives && teller) await(flag, 2);
  if (how != Handing::used_before_the_barrier) sync_threads();
  if (!gives) y[64 + threadIdx.x] = y[63 - threadIdx.x];
}
template <Handing how>
__global__ void handed_on(float* y, const float* x, int) {
  hand_on<how>(y, x, blockIdx.x == 0);
}
__device__ int ticket_of_block(float* y) {
  __shared__ int ticket;
  if (threadIdx.x == 0) ticket = take_ticket(reinterpret_cast<int32_t*>(y + 254));
  sync_threads();
  return ticket;
}
__global__ void handed_on_by_tickets(float* y, const float* x, int) {
  hand_on<Handing::right>(y, x, ticket_of_block(y) == 0);
}
__global__ void counted_from_within(float* y, const float*, int) {
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) store(reinterpret_cast<int32_t*>(y + 254), Vector<int32_t, 1>{0});
  } else {
    ticket_of_block(y);
  }
}
__global__ void warp_order(float* y, const float* x, int) {
  __shared__ float room[64];
  room[threadIdx.x] = x[threadIdx.x];
  sync_warp();
  y[blockIdx.x * 64 + threadIdx.x] = room[threadIdx.x ^ 31];
}
// Warp 0 hands a row to warp 1 at barrier 1, and gets its place back at barrier 2 for another one.
enum class Turns {
  right,
  handed_before_it_is_written,
  read_before_the_turn,
  overwritten_before_the_turn,
  never_handed,
  handed_twice,
  other_number,
  no_whole_warps,
  barrier_zero
};
template <Turns how>
__global__ void turns(float* y, const float* x, int) {
  __shared__ float row[32];
  const int lane = lane_index();
  const auto y_of_lane = [&](int part) -> float& { return y[blockIdx.x * 64 + part * 32 + lane]; };
  if (warp_index() == 0) row[lane] = 0;
  sync_threads();
  if (warp_index() == 0) {
    if (how == Turns::handed_before_it_is_written) barrier_arrive(1, 64);
    row[lane] = x[lane];
    if (how == Turns::handed_twice) barrier_arrive(3, 64);
    if (how == Turns::no_whole_warps) barrier_arrive(1, 63);
    if (how == Turns::barrier_zero) barrier_arrive(0, 64);
    if (how != Turns::handed_before_it_is_written && how != Turns::never_handed) barrier_arrive(1, 64);
    if (how != Turns::overwritten_before_the_turn) barrier_sync(2, 64);
    row[lane] = x[32 + lane];
    sync_warp();
    y_of_lane(1) = row[31 - lane];
  } else {
    if (how != Turns::read_before_the_turn) barrier_sync(1, how == Turns::other_number ? 32 : 64);
    y_of_lane(0) = row[31 - lane];
    if (how == Turns::read_before_the_turn) barrier_sync(1, 64);
    if (how != Turns::overwritten_before_the_turn) barrier_arrive(2, 64);
  }
}
__global__ void misaligned(float* y, const float* x, int n) { store(y + 4 * threadIdx.x, load<4>(x + n)); }
__global__ void early_async(float* y, const float* x, int) {
  float* room = shared_memory<float>();
  if (threadIdx.x < 16) copy_async(room + 4 * threadIdx.x, x + 4 * threadIdx.x);
  copy_async_commit();
  copy_async_wait<1>();
  sync_threads();
  y[blockIdx.x * 64 + threadIdx.x] = room[threadIdx.x];
}
__global__ void async(float* y, const float* x, int) {
  float* room = shared_memory<float>();
  if (threadIdx.x < 16) copy_async(room + 4 * threadIdx.x, x + 4 * threadIdx.x, threadIdx.x < 8);
  copy_async_commit();
  copy_async_wait<0>();
  sync_threads();
  y[blockIdx.x * 64 + threadIdx.x] = room[threadIdx.x];
}

// D (16, 8) = A (16, 16) * B (16, 8), twice: with B read in columns, and transposed on the way.
template <class T>
__global__ void matrices(float* y, const float* x, int) {
  T* a = shared_memory<T>();
  T *b = a + 256, *b_columns = b + 128;
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += 64) a[i] = to<T>(x[i % 128]);
  for (int i = static_cast<int>(threadIdx.x); i < 128; i += 64) {
    b[i] = to<T>(x[i]);
    b_columns[i % 8 * 16 + i / 8] = b[i];
  }
  sync_threads();
  const int lane = lane_index();
  unsigned fragment[4], columns[2];
  load_matrix(fragment, a + (lane % 16) * 16 + lane / 16 * 8);
  if (warp_index() == 0) {
    load_matrix(columns, b_columns + lane % 8 * 16 + lane / 8 % 2 * 8);
  } else {
    load_matrix_transposed(columns, b + lane % 16 * 8);
  }
  float d[4] = {};
  multiply_add<T>(d, fragment, columns);
  if (blockIdx.x != 0) return;
  float* to = y + 128 * warp_index() + lane / 4 * 8 + lane % 4 * 2;
  to[0] = d[0];
  to[1] = d[1];
  to[64] = d[2];
  to[65] = d[3];
}

// Its own shared memory and the launch's, each by 32 threads.
__global__ void own_and_dynamic(float* y, const float* x, int) {
  __shared__ float own[32];
  float* dynamic = shared_memory<float>();
  const int lane = lane_index();
  if (warp_index() == 0) own[lane] = x[lane];
  if (warp_index() == 1) dynamic[lane] = x[32 + lane];
  sync_threads();
  const int i = static_cast<int>(threadIdx.x);
  y[blockIdx.x * 64 + threadIdx.x] = i < 32 ? own[i] : dynamic[i - 32];
}

using Kernel = void (*)(float*, const float*, int);
struct Planted {
  const char* name;
  Kernel kernel;
  int64_t shared_bytes = 0;
  int n = 0;
};
const Planted all[] = {
#define PLANTED(name, ...) \
  { #name, name, __VA_ARGS__ }
    PLANTED(reduction, 0),
    PLANTED(divergent_barrier, 0),
    PLANTED(two_barriers, 0),
    {"missing lane 0", missing_lane, 0, 0},
    {"missing lane 5", missing_lane, 0, 5},
    {"missing lane 30", missing_lane, 0, 30},
    {"missing lane 31", missing_lane, 0, 31},
    PLANTED(all_threads_throw, 0),
    PLANTED(lane_of_no_mask, 0),
    PLANTED(unwritten_shared, 0),
    PLANTED(unwritten_dynamic, 256),
    PLANTED(beyond_dynamic, 256, 1),
    PLANTED(beyond_tensor, 0),
    PLANTED(before_tensor, 0),
    PLANTED(beyond_array, 0, 24),
    PLANTED(writes_input, 0),
    PLANTED(unwritten_tensor, 0),
    PLANTED(copies_unwritten, 0, 128),
    PLANTED(moves_beyond, 0, 1016),
    PLANTED(sets_input, 0, 128),
    PLANTED(copies, 0, 256),
    PLANTED(race_in_block, 0),
    PLANTED(race_after_read, 0),
    PLANTED(race_of_blocks, 0),
    {"handed_on", handed_on<Handing::right>},
    {"released_before_the_barrier", handed_on<Handing::released_before_the_barrier>},
    {"used_before_the_barrier", handed_on<Handing::used_before_the_barrier>},
    {"never_released", handed_on<Handing::never_released>},
    PLANTED(handed_on_by_tickets, 0),
    PLANTED(counted_from_within, 0),
    PLANTED(warp_order, 0),
    {"turns", turns<Turns::right>},
    {"handed_before_it_is_written", turns<Turns::handed_before_it_is_written>},
    {"read_before_the_turn", turns<Turns::read_before_the_turn>},
    {"overwritten_before_the_turn", turns<Turns::overwritten_before_the_turn>},
    {"never_handed", turns<Turns::never_handed>},
    {"handed_twice", turns<Turns::handed_twice>},
    {"other_number", turns<Turns::other_number>},
    {"no_whole_warps", turns<Turns::no_whole_warps>},
    {"barrier_zero", turns<Turns::barrier_zero>},
    PLANTED(misaligned, 0, 1),
    PLANTED(early_async, 256),
    PLANTED(async, 256),
    {"matrices of bf16", matrices<bfloat16>, 1024},
    {"matrices of f16", matrices<float16>, 1024},
};
}  // namespace

void run_with_shared(int64_t bytes, bool asks, dim3 grid, int threads, Tensor y, Tensor x) {
  const Launch l{"own_and_dynamic", grid, threads, bytes};
  if (asks) allow_shared_memory(l, own_and_dynamic);
  start(Queue{}, l, own_and_dynamic, y.data<float>(), static_cast<const float*>(x.data<float>()), 0);
}

void run_planted(const char* kernel, Tensor y, Tensor x) {
  for (const Planted& p : all)
    if (std::string_view(p.name) == kernel)
      return launch(Queue{}, {p.name, 2, 64, p.shared_bytes}, p.kernel, y.data<float>(), x.data<float>(), p.n);
  FAIL("no planted kernel {}", kernel);
}

}  // namespace megalith::test
