// The device functions of kernels/loops/warpgroup_cuda.h for nvcc. tests/simt implements them for the CPU.
#pragma once

#include <device_primitives.h>

#include <cstdint>
#include <type_traits>

namespace megalith::cuda {

// The lower half of the PTX manual's matrix descriptor, in units of 16 bytes. The upper half is the same for all: eight
// rows take 1024 bytes, with the 128-byte swizzle.
using MatrixDescriptor = uint32_t;
#define MEGALITH_DESCRIPTOR(name, lower) "mov.b64 " name ", {%" #lower ", 0x40000040}; "
__device__ inline MatrixDescriptor matrix_descriptor(const void* p, int panel = 8) {
  return static_cast<uint32_t>(panel / 8) << 16 | (shared_address(p) & 0x3ffff) / 16;
}
__device__ inline MatrixDescriptor moved(MatrixDescriptor m, int elements) {
  return m + static_cast<uint32_t>(elements / 8);
}

// Keeps the compiler from moving uses of these registers across the call.
template <int n>
__device__ void pin(float (&d)[n][4]) {
#pragma unroll
  for (int j = 0; j < n; j++) asm volatile("" : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])::"memory");
}
template <int n>
__device__ void pin(unsigned (&a)[n][4]) {
#pragma unroll
  for (int j = 0; j < n; j++) asm volatile("" : "+r"(a[j][0]), "+r"(a[j][1]), "+r"(a[j][2]), "+r"(a[j][3])::"memory");
}

template <class... D>
__device__ void products_begin(D&... d) {
  (pin(d), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int m, class... D>
__device__ void products_wait(D&... d) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(m) : "memory");
  (pin(d), ...);
}
__device__ inline void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The sums of n columns, in an instruction's text and as its operands. Later operands are numbered from n / 2 on.
#define MEGALITH_SUMS_64                                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
  "%23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MEGALITH_SUMS_80 MEGALITH_SUMS_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define MEGALITH_SUMS_96 MEGALITH_SUMS_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define MEGALITH_SUMS_112 MEGALITH_SUMS_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define MEGALITH_SUMS_128 MEGALITH_SUMS_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define MEGALITH_COLUMNS_8(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define MEGALITH_COLUMNS_16(j) MEGALITH_COLUMNS_8(j), MEGALITH_COLUMNS_8(j + 1)
#define MEGALITH_COLUMNS_64 \
  MEGALITH_COLUMNS_16(0), MEGALITH_COLUMNS_16(2), MEGALITH_COLUMNS_16(4), MEGALITH_COLUMNS_16(6)
#define MEGALITH_COLUMNS_80 MEGALITH_COLUMNS_64, MEGALITH_COLUMNS_16(8)
#define MEGALITH_COLUMNS_96 MEGALITH_COLUMNS_80, MEGALITH_COLUMNS_16(10)
#define MEGALITH_COLUMNS_112 MEGALITH_COLUMNS_96, MEGALITH_COLUMNS_16(12)
#define MEGALITH_COLUMNS_128 MEGALITH_COLUMNS_112, MEGALITH_COLUMNS_16(14)

#define MEGALITH_PRODUCT_OF_ROWS(type, n, a, b, add_)                                                              \
  asm volatile("{ .reg .pred add; .reg .b64 left, right; setp.ne.b32 add, %" #add_                                 \
               ", 0; " MEGALITH_DESCRIPTOR("left", a)                                                              \
                   MEGALITH_DESCRIPTOR("right", b) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type \
                                                   " {" MEGALITH_SUMS_##n "}, left, right, add, 1, 1, 0, 0; }"     \
               : MEGALITH_COLUMNS_##n                                                                              \
               : "r"(left), "r"(right), "n"(add))
#define MEGALITH_PRODUCT_OF_OWN_ROWS(type, n, a0, a1, a2, a3, b, add_)                                                \
  asm volatile("{ .reg .pred add; .reg .b64 right; setp.ne.b32 add, %" #add_ ", 0; " MEGALITH_DESCRIPTOR(             \
                   "right", b) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" MEGALITH_SUMS_##n \
               "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, right, add, 1, 1, 0; }"                                  \
               : MEGALITH_COLUMNS_##n                                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(right), "n"(add))
#define MEGALITH_PRODUCT_OF_WEIGHTS(type, n, a0, a1, a2, a3, b)                                                       \
  asm volatile("{ .reg .pred add; .reg .b64 right; setp.eq.b32 add, 0, 0; " MEGALITH_DESCRIPTOR(                      \
                   "right", b) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" MEGALITH_SUMS_##n \
               "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, right, add, 1, 1, 1; }"                                  \
               : MEGALITH_COLUMNS_##n                                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(right))
#define MEGALITH_PRODUCT_OF_COLUMNS(type, n, a, b)                                                                 \
  asm volatile("{ .reg .pred add; .reg .b64 left, right; setp.eq.b32 add, 0, 0; " MEGALITH_DESCRIPTOR("left", a)   \
                   MEGALITH_DESCRIPTOR("right", b) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type \
                                                   " {" MEGALITH_SUMS_##n "}, left, right, add, 1, 1, 1, 1; }"     \
               : MEGALITH_COLUMNS_##n                                                                              \
               : "r"(left), "r"(right))
#define MEGALITH_OF_TYPE(product, ...)         \
  if constexpr (std::is_same_v<T, bfloat16>) { \
    product("bf16", __VA_ARGS__);              \
  } else {                                     \
    product("f16", __VA_ARGS__);               \
  }

template <class T, int n, bool add>
__device__ void product_of_rows(float (&d)[n / 8][4], MatrixDescriptor left, MatrixDescriptor right) {
  static_assert(n == 64 || n == 128);
  static_assert(std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>);
  if constexpr (n == 64) MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_ROWS, 64, 32, 33, 34)
  if constexpr (n == 128) MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_ROWS, 128, 64, 65, 66)
}

template <class T, int n, bool add>
__device__ void product_of_rows(float (&d)[n / 8][4], const unsigned (&a)[4], MatrixDescriptor right) {
  static_assert(n == 64);
  static_assert(std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>);
  MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_OWN_ROWS, 64, 32, 33, 34, 35, 36, 37)
}

template <class T, int eights>
__device__ void product_of_weights(float (&d)[eights][4], const unsigned (&a)[4], MatrixDescriptor right) {
  constexpr int n = 8 * eights;
  static_assert(n == 64 || n == 80 || n == 96 || n == 112 || n == 128);
  static_assert(std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>);
  if constexpr (n == 64) MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_WEIGHTS, 64, 32, 33, 34, 35, 36)
  if constexpr (n == 80) MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_WEIGHTS, 80, 40, 41, 42, 43, 44)
  if constexpr (n == 96) MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_WEIGHTS, 96, 48, 49, 50, 51, 52)
  if constexpr (n == 112) MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_WEIGHTS, 112, 56, 57, 58, 59, 60)
  if constexpr (n == 128) MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_WEIGHTS, 128, 64, 65, 66, 67, 68)
}

template <class T, int eights>
__device__ void product_of_columns(float (&d)[eights][4], MatrixDescriptor left, MatrixDescriptor right) {
  constexpr int n = 8 * eights;
  static_assert(n == 64 || n == 80 || n == 96 || n == 112 || n == 128);
  static_assert(std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>);
  if constexpr (n == 64) MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_COLUMNS, 64, 32, 33)
  if constexpr (n == 80) MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_COLUMNS, 80, 40, 41)
  if constexpr (n == 96) MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_COLUMNS, 96, 48, 49)
  if constexpr (n == 112) MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_COLUMNS, 112, 56, 57)
  if constexpr (n == 128) MEGALITH_OF_TYPE(MEGALITH_PRODUCT_OF_COLUMNS, 128, 64, 65)
}

#undef MEGALITH_DESCRIPTOR
#undef MEGALITH_OF_TYPE
#undef MEGALITH_PRODUCT_OF_ROWS
#undef MEGALITH_PRODUCT_OF_OWN_ROWS
#undef MEGALITH_PRODUCT_OF_WEIGHTS
#undef MEGALITH_PRODUCT_OF_COLUMNS

}  // namespace megalith::cuda
