#include "trainer/communication/ordered_sum.h"

#include <algorithm>
#include <array>

namespace megalith {

namespace {

template <class T, class Wide>
void combine_as(Tensor out, Tensor parts, Reduce op) {
  constexpr int64_t block = 2048;  // sums that fit the nearest cache
  std::array<Wide, block> sums;
  T* const y = out.data<T>();
  const T* const x = parts.data<T>();
  for (int64_t begin = 0; begin < out.numel(); begin += block) {
    const int64_t length = std::min(block, out.numel() - begin);
    std::transform(x + begin, x + begin + length, sums.begin(), [](T v) { return static_cast<Wide>(v); });
    const auto with = [&](const T* part, auto f) {
      std::transform(part, part + length, sums.begin(), sums.begin(), f);
    };
    for (const T* part = x + out.numel() + begin; part < x + parts.numel(); part += out.numel())
      if (op == Reduce::sum)
        with(part, [](T v, Wide sum) { return sum + static_cast<Wide>(v); });
      else
        with(part, [](T v, Wide max) { return std::max(max, static_cast<Wide>(v)); });
    std::transform(sums.begin(), sums.begin() + length, y + begin, [](Wide v) { return static_cast<T>(v); });
  }
}

}  // namespace

void combine_parts(Tensor out, Tensor parts, Reduce op) {
  CHECK(out.numel() == 0 || (parts.numel() > 0 && parts.numel() % out.numel() == 0),
        "{} elements are not a whole number of parts of {}", parts.numel(), out.numel());
  switch (out.dtype()) {
    case DType::f32: return combine_as<float, float>(out, parts, op);
    case DType::f64: return combine_as<double, double>(out, parts, op);
    case DType::bf16: return combine_as<bfloat16, float>(out, parts, op);
    case DType::f16: return combine_as<float16, float>(out, parts, op);
    default: FAIL("{} cannot be summed over ranks", name_of(out.dtype()));
  }
}

}  // namespace megalith
