// A Tensor is a view: pointer, element type and shape, row-major and dense. It owns nothing, is copied by value, and
// knows neither strides nor gradients. In the dry world the pointer is an address that nobody touches.
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

#include "kernels/base/check.h"

namespace megalith {

constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

enum class DType : uint8_t { f32, bf16, f64, i32 };

constexpr int64_t size_of(DType type) {
  switch (type) {
    case DType::bf16: return 2;
    case DType::f64: return 8;
    default: return 4;
  }
}
constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f64: return "f64";
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
struct dtype_of<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of<int32_t> {
  static constexpr DType value = DType::i32;
};

// On the host: f(T{}) with T float or bfloat16.
template <class F>
void with_compute_type(DType dtype, F&& f) {
  if (dtype == DType::bf16) {
    f(bfloat16{});
  } else {
    f(float{});
  }
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
  int64_t rows() const { return cols() ? numel() / cols() : 0; }

  void* raw() const { return data_; }
  template <class T>
  T* data() const {
    CHECK(dtype_of<T>::value == dtype_, "a tensor of {} read as {}", name_of(dtype_), name_of(dtype_of<T>::value));
    return static_cast<T*>(data_);
  }

  // Elements [begin, end) of the flattened tensor, as one dimension.
  Tensor flat(int64_t begin, int64_t end) const {
    CHECK(0 <= begin && begin <= end && end <= numel(), "elements [{}, {}) of a tensor of {}", begin, end, numel());
    return {static_cast<char*>(data_) + begin * size_of(dtype_), dtype_, {end - begin}};
  }
  // The same elements under another shape.
  Tensor view(Shape shape) const {
    CHECK(shape.numel() == numel(), "a tensor of shape {} viewed as {}", shape_.str(), shape.str());
    return {data_, dtype_, shape};
  }
  // Rows [begin, end) of the tensor seen as (rows, cols).
  Tensor rows(int64_t begin, int64_t end) const {
    return flat(begin * cols(), end * cols()).view({end - begin, cols()});
  }

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Shape shape_;
};

}  // namespace megalith
