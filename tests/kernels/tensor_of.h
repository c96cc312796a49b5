// Tensors over a test's own values, and the two values that are no ordinary numbers.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/tensor/tensor.h"

namespace megalith::test {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

inline Tensor of(std::vector<float>& v, Shape shape) { return {v.data(), DType::f32, shape}; }
inline Tensor of(std::vector<bfloat16>& v, Shape shape) { return {v.data(), DType::bf16, shape}; }
inline Tensor of(std::vector<float16>& v, Shape shape) { return {v.data(), DType::f16, shape}; }
inline Tensor of(std::vector<int32_t>& v, Shape shape) { return {v.data(), DType::i32, shape}; }
inline Tensor of(std::vector<double>& v) { return {v.data(), DType::f64, {static_cast<int64_t>(v.size())}}; }
inline Tensor of(double& v) { return {&v, DType::f64, {1}}; }

}  // namespace megalith::test
