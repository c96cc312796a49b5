// A Tensor is a view: pointer, element type and shape, row-major and dense. It owns nothing, is copied by value, and
// has neither strides nor gradients. In the dry world the pointer is an address without memory.
//
// Legend of the shapes in all headers: B batch (sequences), T sequence length, C width, H heads, D head size = C/H,
// V vocabulary, F = 4C, N = B*T rows, L layers.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/system/check.h"
#include "kernels/tensor/float8.h"

namespace megalith {

constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

enum class DType : uint8_t { f32, bf16, f16, f64, i32, e4m3, e5m2 };  // the last two: float8.h

constexpr int64_t size_of(DType type) {
  switch (type) {
    case DType::bf16:
    case DType::f16: return 2;
    case DType::f64: return 8;
    case DType::e4m3:
    case DType::e5m2: return 1;
    default: return 4;
  }
}
constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::f64: return "f64";
    case DType::e4m3: return "e4m3";
    case DType::e5m2: return "e5m2";
    default: return "i32";
  }
}

// The upper half of a float. Conversion rounds to nearest, ties to even; NaN stays NaN.
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? ((u >> 16) | 0x40u) : rounded);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// IEEE 754 binary16. Conversion rounds to nearest, ties to even, and beyond 65504 to infinity; NaN stays NaN. Both
// directions are selects without branches, so that loops are vectorized, and compute with no subnormal float: those are
// slow.
struct float16 {
  uint16_t bits = 0;

  float16() = default;
  constexpr explicit float16(float value) : bits(bits_of(value)) {}
  constexpr explicit operator float() const { return value_of(bits); }

  static constexpr uint16_t bits_of(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value), size = u & 0x7fffffffu;
    const uint32_t rounded = (size - rebias + 0xfffu + ((size >> 13) & 1u)) >> 13;
    const uint32_t finite = rounded < 0x7c00u ? rounded : 0x7c00u;
    // Added to one half, a float's last bit is the unit of the subnormals; up to half of that unit rounds to 0.
    const uint32_t at_least = size > 0x33000000u ? size : 0x33000000u;
    const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(at_least) + 0.5f) - 0x3f000000u;
    const uint32_t number = size < 0x38800000u ? subnormal : finite;
    const bool nan = size > 0x7f800000u;
    return static_cast<uint16_t>(((u >> 16) & 0x8000u) | (nan ? 0x7e00u | ((u >> 13) & 0x3ffu) : number));
  }
  static constexpr float value_of(uint16_t bits) {
    const uint32_t sign = (bits & 0x8000u) << 16, size = (bits & 0x7fffu) << 13;
    // The exponent of the smallest normal number, by which a subnormal is too large.
    constexpr uint32_t smallest = rebias + (1u << 23);
    const float subnormal = std::bit_cast<float>(size + smallest) - std::bit_cast<float>(smallest);
    const uint32_t number = size + (size < 0x7c00u << 13 ? rebias : 2 * rebias);
    return std::bit_cast<float>(sign | (size < 1u << 23 ? std::bit_cast<uint32_t>(subnormal) : number));
  }

 private:
  static constexpr uint32_t rebias = (127 - 15) << 23;  // difference between the two exponents' biases
};

template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<float8_e4m3> {
  static constexpr DType value = DType::e4m3;
};
template <>
struct dtype_of<float8_e5m2> {
  static constexpr DType value = DType::e5m2;
};

constexpr bool is_16_bit(DType type) { return type == DType::bf16 || type == DType::f16; }
constexpr bool is_8_bit(DType type) { return type == DType::e4m3 || type == DType::e5m2; }

// Host: calls f(T{}) with T bfloat16 or float16; with T float8_e4m3 or float8_e5m2; or with T float, bfloat16 or
// float16.
template <class F>
void with_16_bits(DType dtype, F&& f) {
  if (dtype == DType::bf16) {
    f(bfloat16{});
  } else {
    f(float16{});
  }
}
template <class F>
void with_8_bits(DType dtype, F&& f) {
  if (dtype == DType::e4m3) {
    f(float8_e4m3{});
  } else {
    f(float8_e5m2{});
  }
}
template <class F>
void with_compute_type(DType dtype, F&& f) {
  if (dtype == DType::f32) {
    f(float{});
  } else {
    with_16_bits(dtype, f);
  }
}

// Calls f(T{}) with T float or bfloat16, the types of weights and of the optimizer's state.
template <class F>
void with_f32_or_bf16(DType dtype, F&& f) {
  if (dtype == DType::bf16) {
    f(bfloat16{});
  } else {
    f(float{});
  }
}

// As with_compute_type, for a residual as well: calls f(T{}, R{}), R being T or float.
template <class F>
void with_residual_types(DType compute, DType residual, F&& f) {
  with_compute_type(compute, [&](auto t) {
    if (residual == compute) {
      f(t, t);
    } else {
      f(t, float{});
    }
  });
}

// Up to four dimensions; a Shape of no dimensions belongs to the empty Tensor.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    CHECK(dims.size() <= dims_.size(), "a tensor has at most {} dimensions, not {}", dims_.size(), dims.size());
    for (int64_t d : dims) dims_[static_cast<size_t>(num_dims_++)] = d;
  }
  int num_dims() const { return num_dims_; }
  std::vector<int64_t> dims() const { return {dims_.begin(), dims_.begin() + num_dims_}; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t numel() const {
    int64_t n = num_dims_ > 0 ? 1 : 0;
    for (int i = 0; i < num_dims_; i++) n *= (*this)[i];
    return n;
  }
  bool operator==(const Shape&) const = default;
  std::string str() const {
    std::string s = "(";
    for (int i = 0; i < num_dims_; i++) s += (i ? ", " : "") + std::to_string((*this)[i]);
    return s + ")";
  }

 private:
  std::array<int64_t, 4> dims_{};
  int num_dims_ = 0;
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, Shape shape) : data_(data), dtype_(dtype), shape_(shape) {}

  bool empty() const { return shape_.num_dims() == 0; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return numel() * size_of(dtype_); }
  int64_t cols() const { return empty() ? 0 : shape_[shape_.num_dims() - 1]; }
  int64_t rows() const {
    const int64_t width = cols();
    return width > 0 ? numel() / width : 0;
  }

  void* raw() const { return data_; }
  template <class T>
  T* data() const {
    CHECK(dtype_of<T>::value == dtype_, "a tensor of {} read as {}", name_of(dtype_), name_of(dtype_of<T>::value));
    return static_cast<T*>(data_);
  }
  template <class T>
  T* data_or_null() const {
    return empty() ? nullptr : data<T>();
  }

  // Returns elements [begin, end) of the flattened tensor, as one dimension.
  Tensor flat(int64_t begin, int64_t end) const {
    CHECK(0 <= begin && begin <= end && end <= numel(), "elements [{}, {}) of a tensor of {}", begin, end, numel());
    return {static_cast<char*>(data_) + begin * size_of(dtype_), dtype_, {end - begin}};
  }
  // Returns the same elements under another shape.
  Tensor view(Shape shape) const {
    CHECK(shape.numel() == numel(), "a tensor of shape {} viewed as {}", shape_.str(), shape.str());
    return {data_, dtype_, shape};
  }
  // Returns rows [begin, end) of the tensor seen as (rows, cols).
  Tensor rows(int64_t begin, int64_t end) const {
    return flat(begin * cols(), end * cols()).view({end - begin, cols()});
  }

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Shape shape_;
};

}  // namespace megalith
