// The device functions of kernels/loops/device_cuda.h for nvcc. tests/simt implements them for the CPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/stream/queue_cuda.h"
#include "kernels/system/check.h"
#include "kernels/tensor/tensor.h"

namespace megalith::cuda {

constexpr unsigned full_mask = 0xffffffffu;

struct Launch {
  const char* name;
  dim3 grid, block;
  int64_t shared_bytes = 0;
};

// Describes the request, and the limits of the GPU and the kernel.
template <class... Parameters>
std::string refused(const Launch& l, void (*kernel)(Parameters...), cudaError_t error) {
  int gpu = 0, most_shared = 0;
  cudaFuncAttributes own{};
  cudaGetDevice(&gpu);
  cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu);
  cudaFuncGetAttributes(&own, kernel);
  return fmt::format(
      "{}: a launch of ({}, {}, {}) blocks of {} threads, each block with {} bytes of shared memory in addition to {} "
      "of the kernel's own: {} ({}). GPU {} gives a block {} bytes, and {} threads with the {} registers of each",
      l.name, l.grid.x, l.grid.y, l.grid.z, l.block.x * l.block.y * l.block.z, l.shared_bytes, own.sharedSizeBytes,
      cudaGetErrorString(error), cudaGetErrorName(error), gpu, most_shared, own.maxThreadsPerBlock, own.numRegs);
}

template <class... Parameters>
void allow_shared_memory(const Launch& l, void (*kernel)(Parameters...)) {
  const cudaError_t e =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(l.shared_bytes));
  CHECK(e == cudaSuccess, "{}", refused(l, kernel, e));
}
template <class... Parameters>
void start(Queue queue, const Launch& l, void (*kernel)(Parameters...), Parameters... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = l.grid;
  config.blockDim = l.block;
  config.dynamicSmemBytes = static_cast<size_t>(l.shared_bytes);
  config.stream = queue.stream;
  const cudaError_t e = cudaLaunchKernelEx(&config, kernel, arguments...);
  CHECK(e == cudaSuccess, "{}", refused(l, kernel, e));
}

__device__ inline void sync_threads() { __syncthreads(); }
__device__ inline void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
}
__device__ inline void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");
}
__device__ inline void sync_warp(unsigned mask = full_mask) { __syncwarp(mask); }

__device__ inline unsigned ballot(bool p, unsigned mask = full_mask) { return __ballot_sync(mask, p); }
__device__ inline bool any(bool p, unsigned mask = full_mask) { return __any_sync(mask, p); }

template <class T>
__device__ T shuffle(T v, int lane, unsigned mask = full_mask) {
  return __shfl_sync(mask, v, lane);
}
template <class T>
__device__ T shuffle_xor(T v, int bits, unsigned mask = full_mask) {
  return __shfl_xor_sync(mask, v, bits);
}

template <class T, int n>
struct Vector {
  static constexpr int bytes = n * static_cast<int>(sizeof(T));
  static_assert(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes % 16 == 0);
  T v[n];
  __device__ T& operator[](int i) { return v[i]; }
  __device__ const T& operator[](int i) const { return v[i]; }
};

// A vector as the words in which it is loaded and stored.
template <class V>
union Words {
  template <int bytes, class T, class U>
  using If = std::conditional_t<V::bytes == bytes, T, U>;
  using Word = If<1, unsigned char, If<2, unsigned short, If<4, unsigned, If<8, uint2, uint4>>>>;
  static constexpr int count = V::bytes / static_cast<int>(sizeof(Word));
  V vector;
  Word words[count];
  __device__ Words() {}
};
template <int n, class T, class Access>
__device__ __forceinline__ Vector<T, n> load_by(const T* p, Access access) {
  using Bits = Words<Vector<T, n>>;
  Bits bits;
#pragma unroll
  for (int i = 0; i < Bits::count; i++) bits.words[i] = access(reinterpret_cast<const typename Bits::Word*>(p) + i);
  return bits.vector;
}
template <int n, class T>
__device__ __forceinline__ Vector<T, n> load(const T* p) {
  return load_by<n>(p, [](const auto* at) { return *at; });
}
template <int n, class T>
__device__ __forceinline__ Vector<T, n> load_once(const T* p) {
  return load_by<n>(p, [](const auto* at) { return __ldcs(at); });
}

template <int n, class T, class Access>
__device__ __forceinline__ void store_by(T* p, const Vector<T, n>& v, Access access) {
  using Bits = Words<Vector<T, n>>;
  Bits bits;
  bits.vector = v;
#pragma unroll
  for (int i = 0; i < Bits::count; i++) access(reinterpret_cast<typename Bits::Word*>(p) + i, bits.words[i]);
}
template <int n, class T>
__device__ __forceinline__ void store(T* p, const Vector<T, n>& v) {
  store_by(p, v, [](auto* at, auto word) { *at = word; });
}
template <int n, class T>
__device__ __forceinline__ void store_once(T* p, const Vector<T, n>& v) {
  store_by(p, v, [](auto* at, auto word) { __stcs(at, word); });
}

__device__ inline void add_to_memory(float* p, const Vector<float, 4>& v) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(p)), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
}

template <class T>
__device__ T* shared_memory(int64_t byte = 0) {
  extern __shared__ __align__(1024) uint4 megalith_shared[];
  return reinterpret_cast<T*>(reinterpret_cast<char*>(megalith_shared) + byte);
}

__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(bfloat16 v) { return __uint_as_float(static_cast<unsigned>(v.bits) << 16); }
__device__ inline float to_float(float16 v) { return __half2float(__ushort_as_half(v.bits)); }
template <class T>
__device__ T to(float v);
template <>
__device__ inline float to<float>(float v) {
  return v;
}
template <>
__device__ inline bfloat16 to<bfloat16>(float v) {
  bfloat16 y;
  y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(v));
  return y;
}
template <>
__device__ inline float16 to<float16>(float v) {
  float16 y;
  y.bits = __half_as_ushort(__float2half_rn(v));
  return y;
}
template <class T>
__device__ unsigned pack(float low, float high);
template <>
__device__ inline unsigned pack<bfloat16>(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return static_cast<unsigned>(__bfloat16_as_ushort(both.y)) << 16 | __bfloat16_as_ushort(both.x);
}
template <>
__device__ inline unsigned pack<float16>(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return static_cast<unsigned>(__half_as_ushort(both.y)) << 16 | __half_as_ushort(both.x);
}

// Hopper converts two at a time; with a toolkit of CUDA 12.1 or later also Ada.
#ifdef __CUDA_ARCH__
constexpr bool converts_to_8_bits = __CUDA_ARCH__ >= 900 || (__CUDA_ARCH__ >= 890 && CUDART_VERSION >= 12010);
#else
constexpr bool converts_to_8_bits = false;
#endif
template <>
__device__ inline unsigned pack<float8_e4m3>(float low, float high) {
  uint16_t both = 0;
  if constexpr (converts_to_8_bits)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
  else
    both = static_cast<uint16_t>(float8_e4m3::bits_of(high) << 8 | float8_e4m3::bits_of(low));
  return both;
}
template <>
__device__ inline unsigned pack<float8_e5m2>(float low, float high) {
  if constexpr (!converts_to_8_bits)
    return static_cast<unsigned>(float8_e5m2::bits_of(high)) << 8 | float8_e5m2::bits_of(low);
  uint16_t both = 0;
  if constexpr (converts_to_8_bits) asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
  // What is nearer to the number after the largest, or half way, is infinite, whose bits follow those of the largest.
  constexpr float half_way = 61440;
  return both + (fabsf(low) >= half_way ? 1u : 0u) + (fabsf(high) >= half_way ? 0x100u : 0u);
}

__device__ inline float fast_exp2(float v) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(v));
  return y;
}
__device__ inline float fast_exp(float v) { return __expf(v); }
__device__ inline float fast_reciprocal(float v) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(v));
  return y;
}

__device__ inline unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

template <int n>
__device__ void load_matrix(unsigned (&r)[n], const void* row) {
  static_assert(n == 1 || n == 2 || n == 4);
  const unsigned p = shared_address(row);
  if constexpr (n == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(p) : "memory");
  } else if constexpr (n == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(p)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
  }
}
template <int n>
__device__ void load_matrix_transposed(unsigned (&r)[n], const void* row) {
  static_assert(n == 1 || n == 2 || n == 4);
  const unsigned p = shared_address(row);
  if constexpr (n == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(p) : "memory");
  } else if constexpr (n == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(p)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
  }
}

#define MEGALITH_MULTIPLY_ADD(type)                                                   \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <class T>
__device__ void multiply_add(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  static_assert(std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>);
  if constexpr (std::is_same_v<T, bfloat16>) MEGALITH_MULTIPLY_ADD("bf16");
  if constexpr (std::is_same_v<T, float16>) MEGALITH_MULTIPLY_ADD("f16");
}
#undef MEGALITH_MULTIPLY_ADD

__device__ inline int32_t take_ticket(int32_t* counter) {
  int32_t ticket;
  asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;"
               : "=r"(ticket)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return ticket;
}
__device__ inline void release(int32_t* flag, int32_t value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" : : "l"(__cvta_generic_to_global(flag)), "r"(value) : "memory");
}
__device__ inline int32_t await(const int32_t* flag, int32_t at_least) {
  int32_t value;
  do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(flag)) : "memory");
  while (value < at_least);
  return value;
}

__device__ inline void copy_async(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n>
__device__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory");
}

}  // namespace megalith::cuda
