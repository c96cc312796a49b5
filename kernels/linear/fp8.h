// Products in 8 bits (float8.h), as in NVIDIA's per-tensor current scaling: each factor is a whole tensor times one
// scale, which its own largest magnitude decides, so that the largest becomes the type's largest number. The rounded
// values are multiplied, with sums in f32, and the product is divided by both scales.
//
//   scale(amax) = largest / amax, at most 2^126; 1 if amax is 0; NaN if it is infinite
//   value       = round(x * scale), product = sum_k a b / (scale_a * scale_b)
//
// A tensor with an infinity or a NaN has an infinite amax, so all its values, and all products with it, are NaN.
#pragma once

#include <limits>

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

constexpr float largest_of(DType type) { return type == DType::e4m3 ? 448.0f : 57344.0f; }
constexpr float fp8_scale(float amax, float largest) {
  constexpr float most = 0x1p126f;  // its reciprocal is a normal number
  if (!(amax <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::quiet_NaN();
  return amax > largest / most ? largest / amax : amax > 0 ? most : 1.0f;
}

// The sizes of products in 8 bits are multiples of this, except the rows of an input, and their tensors begin on
// boundaries of as many bytes (cuBLASLt's rules for these types).
constexpr int64_t fp8_multiple = 16;

// Finds the largest magnitude of a tensor whose producer does not (Largest).
struct LargestMagnitude {
  static constexpr const char* name = "largest_magnitude";
  Tensor amax;  // (1) f32: becomes the largest |x| if that is larger, infinity if an x is infinite or NaN
  Tensor x;     // f32, bf16 or f16
};

// y = x * scale(amax), rounded to 8 bits, and its transpose. Either may be empty. C is a multiple of fp8_multiple, and
// with the transpose R as well.
struct CastToFp8 {
  static constexpr const char* name = "cast_to_fp8";
  Tensor y;           // (R, C) e4m3 or e5m2, written
  Tensor transposed;  // (C, R), of the same type, written
  Tensor unscale;     // (1) f32, written: 1 / scale
  Tensor x;           // (R, C) f32, bf16 or f16
  Tensor amax;        // (1) f32: the largest |x|; larger ones become the largest e4m3, or infinite in e5m2
};

// y = the transpose of x. R and C are multiples of fp8_multiple.
struct TransposeFp8 {
  static constexpr const char* name = "transpose_fp8";
  Tensor y;  // (C, R), written
  Tensor x;  // (R, C) e4m3 or e5m2, as y
};

// y = (a b^T) * a_unscale * b_unscale + bias, or y += that.
struct Fp8Product {
  static constexpr const char* name = "fp8_product";
  Tensor y;                     // (M, N) bf16, written; or f32, which accumulates if `add`
  Tensor a;                     // (M, K) e4m3 or e5m2
  Tensor b;                     // (N, K) e4m3
  Tensor a_unscale, b_unscale;  // (1) f32 each
  Tensor bias{};                // (N) of y's type; empty: none
  bool add = false;
};

void launch(Stream& s, const LargestMagnitude& op);
void launch(Stream& s, const CastToFp8& op);
void launch(Stream& s, const TransposeFp8& op);
void launch(Stream& s, const Fp8Product& op);
namespace cpu {
void run(Queue& queue, const LargestMagnitude& op);
void run(Queue& queue, const CastToFp8& op);
void run(Queue& queue, const TransposeFp8& op);
void run(Queue& queue, const Fp8Product& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const LargestMagnitude& op);
void run(Queue queue, const CastToFp8& op);
void run(Queue queue, const TransposeFp8& op);
void run(Queue queue, const Fp8Product& op);
}  // namespace cuda

}  // namespace megalith
