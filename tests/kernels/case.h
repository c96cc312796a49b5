// One case is one op at one shape: its arguments by name, the call, and its plain twin, which does the same on doubles.
// The checks in ops_test.cpp and gradients_test.cpp run every case; a new op is one function in a *cases.cpp and its
// line in case_list.cpp.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith::test {

using Values = std::vector<double>;

struct Arg {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Values values;           // before the op; representable in dtype
  bool written = false;    // else the op must leave it as it is
  bool any_shape = false;  // the op accepts any number of columns
  bool scratch = false;    // written, but what is in it means nothing
};

// The arguments of a case in doubles, by name. Twins look them up for every element, so the few are searched in order.
class Doubles {
 public:
  Values& operator[](std::string_view name) {
    for (auto& [known, values] : all_)
      if (known == name) return values;
    return all_.emplace_back(name, Values{}).second;
  }

 private:
  std::deque<std::pair<std::string, Values>> all_;  // which stay where they are
};

struct Case {
  std::string op;
  std::string shape;
  DType dtype = DType::f32;
  std::vector<Arg> args;
  std::function<void(Stream&, const std::vector<Tensor>&)> run;
  std::function<void(Doubles&)> twin;
  bool same_for_any_threads = true;
  bool aligned = false;                    // the op refuses tensors that do not begin on boundaries of 16 bytes
  std::set<std::string> accumulates = {};  // written arguments that the op adds to
  std::vector<std::string> also = {};      // ops that it launches after its own
  std::string name() const { return op + " " + shape + " " + name_of(dtype); }
  std::vector<std::string> launched() const {
    std::vector<std::string> names = also;
    names.insert(names.begin(), op);
    return names;
  }
};

inline void PrintTo(const Case& c, std::ostream* to) { *to << c.name(); }

inline double rounded(double v, DType dtype) {
  switch (dtype) {
    case DType::f32: return static_cast<double>(static_cast<float>(v));
    case DType::bf16: return static_cast<double>(static_cast<float>(bfloat16(static_cast<float>(v))));
    case DType::f16: return static_cast<double>(static_cast<float>(float16(static_cast<float>(v))));
    case DType::e4m3: return double{float8_e4m3::value_of(float8_e4m3::bits_of(static_cast<float>(v)))};
    case DType::e5m2: return double{float8_e5m2::value_of(float8_e5m2::bits_of(static_cast<float>(v)))};
    default: return v;
  }
}

// Normal values, the same on every run.
inline Arg in(const std::string& name, DType dtype, Shape shape, double scale = 1, double shift = 0) {
  std::mt19937_64 generator(std::hash<std::string>{}(name) + static_cast<uint64_t>(shape.numel()));
  std::normal_distribution<double> normal;
  Arg arg{.name = name, .dtype = dtype, .shape = shape, .values = Values(static_cast<size_t>(shape.numel()))};
  for (double& v : arg.values) v = rounded(shift + scale * normal(generator), dtype);
  return arg;
}
// Accumulated into, or overwritten: either way it starts with values, and the twin knows what becomes of them.
inline Arg out(const std::string& name, DType dtype, Shape shape) {
  Arg arg = in(name, dtype, shape);
  arg.written = true;
  return arg;
}
// Integers in [low, high).
inline Arg integers(const std::string& name, Shape shape, int64_t low, int64_t high) {
  std::mt19937_64 generator(static_cast<uint64_t>(shape.numel()));
  std::uniform_int_distribution<int64_t> uniform(low, high - 1);
  Arg arg{.name = name, .dtype = DType::i32, .shape = shape, .values = Values(static_cast<size_t>(shape.numel()))};
  for (double& v : arg.values) v = static_cast<double>(uniform(generator));
  return arg;
}

// An argument's memory: `offset` elements behind a 64-byte boundary, between guards that nobody may write to.
class Memory {
 public:
  Memory(const Arg&&, int64_t) = delete;  // it is referred to
  Memory(const Arg& arg, int64_t offset) : arg_(&arg) {
    const int64_t size = size_of(arg.dtype);
    begin_ = guard + offset * size;
    bytes_ = arg.shape.numel() * size;
    store_.assign(static_cast<size_t>(begin_ + bytes_ + guard + 64), pattern);
    base_ = store_.data() + (64 - reinterpret_cast<uintptr_t>(store_.data()) % 64) % 64;
    for (int64_t i = 0; i < arg.shape.numel(); i++) set(i, arg.values[static_cast<size_t>(i)]);
  }
  Tensor tensor() const {
    if (arg_->shape.num_dims() == 0) return {};
    return {base_ + begin_, arg_->dtype, arg_->shape};
  }
  void set(int64_t i, double v) {
    switch (arg_->dtype) {
      case DType::f32: put(i, static_cast<float>(v)); break;
      case DType::bf16: put(i, bfloat16(static_cast<float>(v))); break;
      case DType::f16: put(i, float16(static_cast<float>(v))); break;
      case DType::f64: put(i, v); break;
      case DType::i32: put(i, static_cast<int32_t>(v)); break;
      case DType::e4m3: put(i, float8_e4m3::bits_of(static_cast<float>(v))); break;
      case DType::e5m2: put(i, float8_e5m2::bits_of(static_cast<float>(v))); break;
    }
  }
  double get(int64_t i) const {
    switch (arg_->dtype) {
      case DType::f32: return static_cast<double>(at<float>(i));
      case DType::bf16: return static_cast<double>(static_cast<float>(at<bfloat16>(i)));
      case DType::f16: return static_cast<double>(static_cast<float>(at<float16>(i)));
      case DType::f64: return at<double>(i);
      case DType::e4m3: return double{float8_e4m3::value_of(at<uint8_t>(i))};
      case DType::e5m2: return double{float8_e5m2::value_of(at<uint8_t>(i))};
      default: return at<int32_t>(i);
    }
  }
  std::vector<unsigned char> bits() const { return {base_ + begin_, base_ + begin_ + bytes_}; }
  bool guards_intact() const {
    for (const unsigned char* p = base_; p < base_ + begin_; p++)
      if (*p != pattern) return false;
    for (const unsigned char* p = base_ + begin_ + bytes_; p < base_ + begin_ + bytes_ + guard; p++)
      if (*p != pattern) return false;
    return true;
  }

 private:
  static constexpr int64_t guard = 256;
  static constexpr unsigned char pattern = 0xa5;
  template <class T>
  void put(int64_t i, T v) {
    std::memcpy(base_ + begin_ + i * int64_t{sizeof(T)}, &v, sizeof(T));
  }
  template <class T>
  T at(int64_t i) const {
    T v;
    std::memcpy(&v, base_ + begin_ + i * int64_t{sizeof(T)}, sizeof(T));
    return v;
  }
  const Arg* arg_;
  int64_t begin_, bytes_;
  std::vector<unsigned char> store_;
  unsigned char* base_;
};

struct Memories {
  Memories(const Case& c, int64_t offset) {
    memory.reserve(c.args.size());
    for (const Arg& arg : c.args) memory.emplace_back(arg, offset);
  }
  std::vector<Tensor> tensors() const {
    std::vector<Tensor> all;
    for (const Memory& m : memory) all.push_back(m.tensor());
    return all;
  }
  std::vector<Memory> memory;
};

inline Doubles doubles(const Case& c) {
  Doubles d;
  for (const Arg& arg : c.args) d[arg.name] = arg.values;
  return d;
}

// One result may be off by this: half a unit of its own last place, and the rounding of sums in f32, which goes with
// the largest number of the tensor. Casts to 8 bits are exact.
inline double tolerance(DType dtype, double want, double largest) {
  const double of_sums = (dtype == DType::f64 ? 1e-12 : 3e-6) * largest;
  switch (dtype) {
    case DType::bf16: return 0x1p-8 * std::abs(want) + of_sums;
    case DType::f16: return 0x1p-11 * std::max(std::abs(want), 0x1p-14) + of_sums;  // subnormals have one unit
    case DType::f32: return 0x1p-23 * std::abs(want) + of_sums;
    case DType::e4m3:
    case DType::e5m2: return 0;
    default: return 0x1p-52 * std::abs(want) + of_sums;
  }
}

}  // namespace megalith::test
