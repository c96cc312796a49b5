// Conversions between types, and moves between a register and its halves (PTX ISA, "cvt", "mov").
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/tensor/float8.h"
#include "tests/ptx/lanewise.h"

namespace megalith::ptx {

namespace {
// To `precision` bits, with exponents from `least_exponent` on, to nearest even; what is too large is infinite.
double narrowed(double v, int precision, int least_exponent, double largest) {
  if (v == 0 || !std::isfinite(v)) return v;
  const int exponent = std::max(std::ilogb(v), least_exponent) - precision + 1;
  const double r = std::ldexp(std::nearbyint(std::ldexp(v, -exponent)), exponent);
  return std::abs(r) > largest ? std::copysign(std::numeric_limits<double>::infinity(), v) : r;
}
u32 bfloat16_bits(float v) {
  if (std::isnan(v)) return 0x7fff;
  return std::bit_cast<u32>(static_cast<float>(narrowed(v, 8, -126, 0x1.fep127))) >> 16;
}
u32 half_bits(float v) {
  if (std::isnan(v)) return 0x7fff;
  const double r = std::abs(narrowed(v, 11, -14, 65504));
  const u32 sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isinf(r)) return sign | 0x7c00;
  const auto units = static_cast<u32>(r < 0x1p-14 ? std::ldexp(r, 24) : 0);
  if (r < 0x1p-14) return sign | units;
  const int exponent = std::ilogb(r);
  return sign | (static_cast<u32>(exponent + 15) << 10) | (static_cast<u32>(std::ldexp(r, 10 - exponent)) - 1024);
}

// To an integer: rounded, held to its range. NaN is 0, from or to 64 bits the integer whose only bit is the highest.
template <class D, class S, bool nearest>
D to_integer(S v) {
  if (std::isnan(v))
    return sizeof(S) == 8 || sizeof(D) == 8 ? static_cast<D>(std::make_unsigned_t<D>{1} << (bits<D> - 1)) : D{0};
  const S r = nearest ? std::nearbyint(v) : std::trunc(v);
  if (r <= static_cast<S>(std::numeric_limits<D>::min())) return std::numeric_limits<D>::min();
  if (r >= static_cast<S>(std::numeric_limits<D>::max())) return std::numeric_limits<D>::max();
  return static_cast<D>(r);
}

// A source register may be wider than its type, which then takes the low bits.
template <class S, class... D>
void add_conversions_of(Operations& all) {
  const auto name = [](const char* to) { return fmt::format("cvt.{}.{}", to, type_name<S>()); };
  (value(all, name(type_name<D>()), [](S v) { return static_cast<D>(v); }), ...);
  if constexpr (sizeof(S) < 8)
    (value(all, name(type_name<D>()), [](u64 v) { return static_cast<D>(static_cast<S>(v)); }), ...);
}
template <class... S>
void add_integer_conversions(Operations& all) {
  (add_conversions_of<S, s16, u16, s32, u32, s64, u64>(all), ...);
  (value(all, of<S>("cvt.rn.f32"), [](S v) { return static_cast<f32>(v); }), ...);
  (value(all, of<S>("cvt.rn.f64"), [](S v) { return static_cast<f64>(v); }), ...);
  (value(all, fmt::format("cvt.rzi.{}.f32", type_name<S>()), [](f32 v) { return to_integer<S, f32, false>(v); }), ...);
  (value(all, fmt::format("cvt.rzi.{}.f64", type_name<S>()), [](f64 v) { return to_integer<S, f64, false>(v); }), ...);
  (value(all, fmt::format("cvt.rni.{}.f32", type_name<S>()), [](f32 v) { return to_integer<S, f32, true>(v); }), ...);
  (value(all, fmt::format("cvt.rni.{}.f64", type_name<S>()), [](f64 v) { return to_integer<S, f64, true>(v); }), ...);
}

// mov between one register and two halves of it; the first half is the low one.
template <class T, class Half>
void unpack(Warp& w, const Instruction& i, uint32_t lanes) {
  each_lane(lanes, [&](int lane) {
    const T v = w.get<T>(i, 2, lane);
    w.set<Half>(i, 0, lane, static_cast<Half>(v));
    w.set<Half>(i, 1, lane, static_cast<Half>(v >> bits<Half>));
  });
}
template <class T, class Half>
void pack(Warp& w, const Instruction& i, uint32_t lanes) {
  each_lane(lanes, [&](int lane) {
    w.set<T>(i, 0, lane,
             static_cast<T>(static_cast<T>(w.get<Half>(i, 2, lane)) << bits<Half> | w.get<Half>(i, 1, lane)));
  });
}
// NaN has the bits 0x7f, whatever its sign.
template <class T>
u16 two_of_8_bits(float high, float low, float largest) {
  const auto bits = [=](float v) -> unsigned {
    return std::isnan(v) ? 0x7fu : T::bits_of(std::clamp(v, -largest, largest));
  };
  return static_cast<u16>(bits(high) << 8 | bits(low));
}
}  // namespace

void add_conversions(Operations& all) {
  add_integer_conversions<s16, u16, s32, u32, s64, u64>(all);
  value(all, "cvt.f64.f32", [](f32 v) { return static_cast<f64>(v); });
  value(all, "cvt.rn.f32.f64", [](f64 v) { return static_cast<f32>(v); });
  value(all, "cvt.rzi.f64.f64", [](f64 v) { return std::trunc(v); });
  value(all, "cvt.rni.f64.f64", [](f64 v) { return std::nearbyint(v); });
  value(all, "cvt.rzi.f32.f32", [](f32 v) { return std::trunc(v); });
  value(all, "cvt.rni.f32.f32", [](f32 v) { return std::nearbyint(v); });
  value(all, "cvt.sat.f32.f32", [](f32 v) { return v > 0 ? std::min(v, 1.0f) : 0.0f; });  // NaN is 0
  value(all, "cvt.f32.f16", [](u16 h) {
    const int exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;
    const float sign = h & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 0x1f)
      return fraction ? std::numeric_limits<float>::quiet_NaN() : sign * std::numeric_limits<float>::infinity();
    return sign * (exponent ? std::ldexp(static_cast<float>(1024 + fraction), exponent - 25)
                            : std::ldexp(static_cast<float>(fraction), -24));
  });
  value(all, "cvt.rn.f16.f32", [](f32 v) { return half_bits(v); });
  value(all, "cvt.rn.bf16.f32", [](f32 v) { return bfloat16_bits(v); });
  // The first goes to the upper half.
  value(all, "cvt.rn.f16x2.f32", [](f32 a, f32 b) { return half_bits(a) << 16 | half_bits(b); });
  value(all, "cvt.rn.bf16x2.f32", [](f32 a, f32 b) { return bfloat16_bits(a) << 16 | bfloat16_bits(b); });
  value(all, "cvt.rn.satfinite.e4m3x2.f32", [](f32 a, f32 b) { return two_of_8_bits<float8_e4m3>(a, b, 448); });
  value(all, "cvt.rn.satfinite.e5m2x2.f32", [](f32 a, f32 b) { return two_of_8_bits<float8_e5m2>(a, b, 57344); });
  add(all, "mov.b32", "2w=w", unpack<u32, u16>);
  add(all, "mov.b32", "w=2w", pack<u32, u16>);
  add(all, "mov.b64", "2w=l", unpack<u64, u32>);
  add(all, "mov.b64", "l=2w", pack<u64, u32>);
}

}  // namespace megalith::ptx
