// The device functions of kernels/loops/device_cuda.h on the CPU. Their twins for nvcc are in kernels/nvcc.
#pragma once

#include <math.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <tuple>
#include <vector>

#include "kernels/stream/queue_cuda.h"
#include "kernels/tensor/tensor.h"
#include "tests/simt/matrix_layout.h"
#include "tests/simt/simt.h"

// Copies that the compiler leaves to the C library are accesses too (hooks.cpp has these three).
asm(".set memcpy, watched_memcpy\n.set memmove, watched_memmove\n.set memset, watched_memset");

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static
#define threadIdx (::megalith::simt::thread_index())
#define blockIdx (::megalith::simt::block_index())
#define blockDim (::megalith::simt::block_size())
#define gridDim (::megalith::simt::grid_size())

namespace megalith::cuda {

using simt::Where;
constexpr unsigned full_mask = 0xffffffffu;

struct Launch {
  const char* name;
  dim3 grid, block;
  int64_t shared_bytes = 0;
};

template <class... Parameters>
void allow_shared_memory(const Launch& l, void (*kernel)(Parameters...)) {
  simt::allow_shared_memory(l.name, reinterpret_cast<const void*>(kernel), l.shared_bytes);
}
// As CUDA lays out a kernel's parameters.
template <class... Parameters>
std::vector<char> laid_out(const Parameters&... given) {
  std::vector<char> bytes;
  const auto append = [&]<class T>(const T& p) {
    const size_t begin = (bytes.size() + alignof(T) - 1) / alignof(T) * alignof(T);
    bytes.resize(begin + sizeof(T));
    std::memcpy(bytes.data() + begin, static_cast<const void*>(&p), sizeof(T));
  };
  (append(given), ...);
  return bytes;
}
template <class... Parameters>
void start(Queue queue, const Launch& l, void (*kernel)(Parameters...), Parameters... arguments) {
  const std::tuple<Parameters...> given(arguments...);
  const std::vector<char> parameters = laid_out(arguments...);
  simt::submit(queue.stream, [=] {
    simt::run({l.name, l.grid, l.block, l.shared_bytes, reinterpret_cast<const void*>(kernel), parameters},
              [&] { std::apply(kernel, given); });
  });
}

inline void sync_threads(Where where = Where::current()) { simt::barrier(where); }
inline void barrier_sync(int id, int threads, Where where = Where::current()) {
  simt::named_barrier(id, threads, true, where);
}
inline void barrier_arrive(int id, int threads, Where where = Where::current()) {
  simt::named_barrier(id, threads, false, where);
}
inline void sync_warp(unsigned mask = full_mask, Where where = Where::current()) {
  simt::meet(
      "sync_warp", mask, &mask, [](void* const*) { simt::order_warp(); }, where);
}

// A value from each lane, one for each: all(lanes, i) makes lane i's result of the values.
template <class T>
struct Exchange {
  T value;
  int from = 0;
};
template <class T>
T exchange(const char* operation, T v, int from, unsigned mask, Where where) {
  Exchange<T> mine{v, from};
  simt::meet(
      operation, mask, &mine,
      [](void* const* lanes) {
        T all[32]{};
        for (int i = 0; i < 32; i++)
          if (lanes[i]) all[i] = static_cast<Exchange<T>*>(lanes[i])->value;
        for (int i = 0; i < 32; i++) {
          if (!lanes[i]) continue;
          auto& lane = *static_cast<Exchange<T>*>(lanes[i]);
          if (!lanes[lane.from])
            simt::fault("a shuffle takes from lane " + std::to_string(lane.from) + ", which its mask does not name");
          lane.value = all[lane.from];
        }
      },
      where);
  return mine.value;
}
template <class T>
T shuffle(T v, int lane, unsigned mask = full_mask, Where where = Where::current()) {
  return exchange("shuffle", v, lane & 31, mask, where);
}
template <class T>
T shuffle_xor(T v, int bits, unsigned mask = full_mask, Where where = Where::current()) {
  return exchange("shuffle_xor", v, (static_cast<int>(threadIdx.x) ^ bits) & 31, mask, where);
}
inline unsigned ballot(bool p, unsigned mask = full_mask, Where where = Where::current()) {
  unsigned mine = p;
  simt::meet(
      "ballot", mask, &mine,
      [](void* const* lanes) {
        unsigned votes = 0;
        for (int i = 0; i < 32; i++)
          if (lanes[i] && *static_cast<unsigned*>(lanes[i])) votes |= 1u << i;
        for (int i = 0; i < 32; i++)
          if (lanes[i]) *static_cast<unsigned*>(lanes[i]) = votes;
      },
      where);
  return mine;
}
inline bool any(bool p, unsigned mask = full_mask, Where where = Where::current()) { return ballot(p, mask, where); }

template <class T, int n>
struct Vector {
  static constexpr int bytes = n * static_cast<int>(sizeof(T));
  static_assert(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes % 16 == 0);
  T v[n];
  T& operator[](int i) { return v[i]; }
  const T& operator[](int i) const { return v[i]; }
};

template <int bytes>
void check_aligned(const void* p) {
  constexpr uintptr_t unit = bytes < 16 ? bytes : 16;
  if (reinterpret_cast<uintptr_t>(p) % unit)
    simt::fault("an access of " + std::to_string(unit) + " bytes is misaligned");
}
template <int n, class T>
[[gnu::no_sanitize("thread")]] Vector<T, n> load(const T* p) {
  Vector<T, n> v;
  check_aligned<v.bytes>(p);
  simt::reads(p, v.bytes);
  std::memcpy(static_cast<void*>(&v), p, v.bytes);
  return v;
}
template <int n, class T>
Vector<T, n> load_once(const T* p) {
  return load<n>(p);
}
template <int n, class T>
[[gnu::no_sanitize("thread")]] void store(T* p, const Vector<T, n>& v) {
  check_aligned<v.bytes>(p);
  simt::writes(p, v.bytes);
  std::memcpy(static_cast<void*>(p), &v, v.bytes);
}
template <int n, class T>
void store_once(T* p, const Vector<T, n>& v) {
  store(p, v);
}

inline void add_to_memory(float* p, const Vector<float, 4>& v) {
  Vector<float, 4> sum = load<4>(p);
  for (int i = 0; i < 4; i++) sum[i] += v[i];
  store(p, sum);
}

template <class T>
T* shared_memory(int64_t byte = 0) {
  if (byte % 16) simt::fault("shared_memory(" + std::to_string(byte) + "): no multiple of 16");
  return reinterpret_cast<T*>(simt::shared_begin() + byte);
}

// Always a part of the kernel: where a class is loaded to be the argument of a call, or the result of a call is stored,
// GCC's thread sanitizer sees no access.
__forceinline__ float to_float(float v) { return v; }
__forceinline__ float to_float(bfloat16 v) { return static_cast<float>(v); }
__forceinline__ float to_float(float16 v) { return static_cast<float>(v); }
template <class T>
__forceinline__ T to(float v) {
  return T(v);
}
template <class T>
unsigned pack(float low, float high) {
  if constexpr (sizeof(T) == 1) {
    return static_cast<unsigned>(T::bits_of(high)) << 8 | T::bits_of(low);
  } else {
    return static_cast<unsigned>(T(high).bits) << 16 | T(low).bits;
  }
}

inline float fast_exp2(float v) { return std::exp2(v); }
inline float fast_exp(float v) { return std::exp(v); }
inline float fast_reciprocal(float v) { return 1 / v; }

// Lane i gives row i % 8 of tile i / 8, and gets a part of each tile.
struct Tiles {
  const void* row;
  unsigned r[4];
};
template <int n, bool transposed>
void load_tiles(unsigned (&r)[n], const void* row, Where where) {
  static_assert(n == 1 || n == 2 || n == 4);
  Tiles mine{row, {}};
  simt::meet(
      transposed ? "load_matrix_transposed" : "load_matrix", full_mask, &mine,
      [](void* const* lanes) {
        for (int tile = 0; tile < n; tile++) {
          uint16_t values[8][8];
          for (int i = 0; i < 8; i++) {
            const void* from = static_cast<Tiles*>(lanes[8 * tile + i])->row;
            check_aligned<16>(from);
            simt::reads(from, 16, 8 * tile + i);
            std::memcpy(values[i], from, 16);
          }
          for (int i = 0; i < 32; i++)
            static_cast<Tiles*>(lanes[i])->r[tile] = simt::part_of_tile(values, i, transposed);
        }
      },
      where);
  for (int i = 0; i < n; i++) r[i] = mine.r[i];
}
template <int n>
void load_matrix(unsigned (&r)[n], const void* row, Where where = Where::current()) {
  load_tiles<n, false>(r, row, where);
}
template <int n>
void load_matrix_transposed(unsigned (&r)[n], const void* row, Where where = Where::current()) {
  load_tiles<n, true>(r, row, where);
}

struct Fragments {
  float* d;
  const unsigned *a, *b;
};
template <class T>
void multiply_add(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Where where = Where::current()) {
  Fragments mine{d, a, b};
  simt::meet(
      "multiply_add", full_mask, &mine,
      [](void* const* lanes) {
        const auto low = [](unsigned two) { return to_float(std::bit_cast<T>(static_cast<uint16_t>(two))); };
        const auto high = [&](unsigned two) { return low(two >> 16); };
        float A[16][16], B[16][8];
        for (int i = 0; i < 32; i++) {
          const auto& lane = *static_cast<Fragments*>(lanes[i]);
          for (int part = 0; part < 4; part++) {
            const auto [row, k] = simt::left_place(i, part);
            A[row][k] = low(lane.a[part]);
            A[row][k + 1] = high(lane.a[part]);
          }
          for (int part = 0; part < 2; part++) {
            const auto [column, k] = simt::right_place(i, part);
            B[k][column] = low(lane.b[part]);
            B[k + 1][column] = high(lane.b[part]);
          }
        }
        for (int i = 0; i < 32; i++)
          for (int part = 0; part < 4; part++) {
            const auto [row, column] = simt::sum_place(i, part);
            float sum = 0;
            for (int k = 0; k < 16; k++) sum += A[row][k] * B[k][column];
            static_cast<Fragments*>(lanes[i])->d[part] += sum;
          }
      },
      where);
}

inline int32_t take_ticket(int32_t* counter) { return simt::take_ticket(counter); }
inline void release(int32_t* flag, int32_t value) { simt::release(flag, value); }
inline int32_t await(const int32_t* flag, int32_t at_least) { return simt::await(flag, at_least); }

inline void copy_async(void* shared, const void* global, bool valid = true) { simt::copy_async(shared, global, valid); }
inline void copy_async_commit() { simt::copy_async_commit(); }
template <int n>
void copy_async_wait() {
  simt::copy_async_wait(n);
}

}  // namespace megalith::cuda
