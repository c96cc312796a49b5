// The conformance suite of communicators is made of these: every kind of group, tensors where its own lie, and values
// such that a wrong order or a wrong part shows.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/device_queue.h"
#include "tests/mpi/groups.h"
#include "trainer/communication/communicator.h"

namespace megalith {

// A tensor with memory of its own, which lets overruns show.
class Owned {
 public:
  Owned(World world, DType dtype, int64_t n)
      : host_(static_cast<size_t>(world == World::cpu ? n * size_of(dtype) : 0), '\x5a'),
        device_(world == World::cuda ? device::allocate(n * size_of(dtype), "a tensor of the test") : nullptr),
        tensor_(world == World::cuda ? device_.get() : host_.data(), dtype, {n}) {}
  operator Tensor() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }

 private:
  std::vector<char> host_;
  device::Memory device_;
  Tensor tensor_;
};

// Types of 8 bits are transferred and never added: any bits will do.
constexpr double of_zero = 128;

inline void set(const Tensor& t, int64_t i, double value) {
  switch (t.dtype()) {
    case DType::f32: t.data<float>()[i] = static_cast<float>(value); return;
    case DType::f64: t.data<double>()[i] = value; return;
    case DType::bf16: t.data<bfloat16>()[i] = bfloat16(static_cast<float>(value)); return;
    case DType::f16: t.data<float16>()[i] = float16(static_cast<float>(value)); return;
    case DType::e4m3: static_cast<uint8_t*>(t.raw())[i] = static_cast<uint8_t>(value + of_zero); return;
    default: t.data<int32_t>()[i] = static_cast<int32_t>(value);
  }
}
inline double get(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::f32: return static_cast<double>(t.data<float>()[i]);
    case DType::f64: return t.data<double>()[i];
    case DType::bf16: return static_cast<double>(static_cast<float>(t.data<bfloat16>()[i]));
    case DType::f16: return static_cast<double>(static_cast<float>(t.data<float16>()[i]));
    case DType::e4m3: return static_cast<const uint8_t*>(t.raw())[i] - of_zero;
    default: return t.data<int32_t>()[i];
  }
}
// Element i of rank r: small whole numbers, exact in every type.
inline double value(int rank, int64_t i) { return static_cast<double>((i * 7 + rank * 31) % 127 - 63); }
// Small enough that sums over the ranks are exact in bf16 as well: its whole numbers end at 256.
inline double small_value(int rank, int64_t i) { return static_cast<double>((i * 7 + rank * 31) % 31 - 15); }

constexpr int64_t transfer_sizes[] = {1, 3, 17, 1023, 20011};
constexpr DType all_types[] = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32};

class Conformance : public testing::TestWithParam<Kind> {
 protected:
  Owned owned(DType dtype, int64_t n) const { return {world_, dtype, n}; }

  // In the order of the stream, wherever the tensor lies.
  void write(const Tensor& t, const std::function<double(int64_t)>& element) {
    s_.upload("write", {t}, [&](std::span<const Tensor> host) {
      for (int64_t i = 0; i < t.numel(); i++) set(host[0], i, element(i));
    });
  }
  void write_values(const Tensor& t, int rank, int64_t first = 0) {
    write(t, [=](int64_t i) { return value(rank, first + i); });
  }
  std::vector<double> read(const Tensor& t) {
    std::vector<double> values(static_cast<size_t>(t.numel()));
    s_.download("read", t, [&](Tensor host) {
      for (size_t i = 0; i < values.size(); i++) values[i] = get(host, static_cast<int64_t>(i));
    });
    s_.synchronize();
    return values;
  }
  std::vector<char> bytes_of(const Tensor& t) {
    std::vector<char> bytes(static_cast<size_t>(t.bytes()));
    s_.download("read", t, [&](Tensor host) { std::memcpy(bytes.data(), host.raw(), bytes.size()); });
    s_.synchronize();
    return bytes;
  }
  void expect_values(const Tensor& t, const std::function<double(int64_t)>& element) {
    const std::vector<double> found = read(t);
    for (size_t i = 0; i < found.size(); i++)
      ASSERT_EQ(found[i], element(static_cast<int64_t>(i))) << name_of(t.dtype()) << " " << t.numel() << " at " << i;
  }

  const World world_ = GetParam().world;
  const std::unique_ptr<DeviceQueue> queue_{world_ == World::cuda ? new DeviceQueue : nullptr};
  Stream s_{world_, queue_ ? queue_->queue() : cuda::Queue{}};
  Group group_ = GetParam().make();
  Communicator& c_ = *group_;
  const int rank_ = group_->rank(), size_ = group_->size();
};

}  // namespace megalith
