// Arithmetic, comparison, logic and moves, each lane for itself (PTX ISA, "Instruction set").
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/ptx/lanewise.h"

namespace megalith::ptx {

namespace {
__extension__ using Signed128 = __int128;
__extension__ using Unsigned128 = unsigned __int128;
template <class T>
using Wide = std::conditional_t<std::is_signed_v<T>, Signed128, Unsigned128>;

// A shift by the register's width or more takes all bits out.
template <class T>
T shifted_right(T a, u32 by) {
  return static_cast<T>(a >> std::min<u32>(by, bits<T> - 1) >> (by >= bits<T> ? 1 : 0));
}

template <class T>
void add_integers(Operations& all) {
  using U = std::make_unsigned_t<T>;
  value(all, of<T>("add"), [](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); });
  value(all, of<T>("sub"), [](T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); });
  value(all, of<T>("mul.lo"), [](T a, T b) { return static_cast<T>(Wide<T>(a) * Wide<T>(b)); });
  value(all, of<T>("mul.hi"), [](T a, T b) { return static_cast<T>(Wide<T>(a) * Wide<T>(b) >> bits<T>); });
  value(all, of<T>("mad.lo"),
        [](T a, T b, T c) { return static_cast<T>(static_cast<U>(Wide<T>(a) * Wide<T>(b)) + static_cast<U>(c)); });
  // Unspecified where the divisor is 0; here all ones, so that it is seen.
  value(all, of<T>("div"),
        [](T a, T b) { return b == 0 ? static_cast<T>(~U{0}) : static_cast<T>(Wide<T>(a) / Wide<T>(b)); });
  value(all, of<T>("rem"),
        [](T a, T b) { return b == 0 ? static_cast<T>(~U{0}) : static_cast<T>(Wide<T>(a) % Wide<T>(b)); });
  value(all, of<T>("min"), [](T a, T b) { return std::min(a, b); });
  value(all, of<T>("max"), [](T a, T b) { return std::max(a, b); });
  value(all, of<T>("shr"), [](T a, u32 by) { return shifted_right(a, by); });
  if constexpr (std::is_signed_v<T>) {
    value(all, of<T>("neg"), [](T a) { return static_cast<T>(U{0} - static_cast<U>(a)); });
    value(all, of<T>("abs"), [](T a) { return a < 0 ? static_cast<T>(U{0} - static_cast<U>(a)) : a; });
  }
}
template <class T, class D>
void add_wide(Operations& all) {
  value(all, of<T>("mul.wide"), [](T a, T b) { return static_cast<D>(Wide<T>(a) * Wide<T>(b)); });
  value(all, of<T>("mad.wide"), [](T a, T b, D c) { return static_cast<D>(Wide<T>(a) * Wide<T>(b) + Wide<T>(c)); });
}

template <class T>
void add_bits(Operations& all) {
  const std::string b = ".b" + std::to_string(bits<T>);
  value(all, "and" + b, [](T a, T c) { return static_cast<T>(a & c); });
  value(all, "or" + b, [](T a, T c) { return static_cast<T>(a | c); });
  value(all, "xor" + b, [](T a, T c) { return static_cast<T>(a ^ c); });
  value(all, "not" + b, [](T a) { return static_cast<T>(~a); });
  value(all, "shl" + b, [](T a, u32 by) { return by >= bits<T> ? T{0} : static_cast<T>(a << by); });
  value(all, "shr" + b, [](T a, u32 by) { return shifted_right(a, by); });
  if constexpr (bits<T> >= 32) {
    value(all, "clz" + b, [](T a) { return static_cast<u32>(std::countl_zero(a)); });
    value(all, "popc" + b, [](T a) { return static_cast<u32>(std::popcount(a)); });
    // So many bits of a into c, from a position on.
    value(all, "bfi" + b, [](T a, T c, u32 position, u32 length) {
      for (u32 at = position & 0xff, n = 0; n < (length & 0xff) && at + n < bits<T>; n++)
        c = static_cast<T>((c & ~(T{1} << (at + n))) | (a >> n & 1) << (at + n));
      return c;
    });
  }
}
// So many bits of a from a position on; what lies above them, or above the register, is the sign, 0 where unsigned.
template <class T>
T extracted(T a, u32 position, u32 length) {
  position &= 0xff, length &= 0xff;
  const u32 sign_at = std::min<u32>(position + length - 1, bits<T> - 1);
  const bool sign = std::is_signed_v<T> && length > 0 && (a >> sign_at & 1);
  std::make_unsigned_t<T> d = 0;
  for (u32 n = 0; n < bits<T>; n++) {
    const bool bit = n < length && position + n < bits<T> ? a >> (position + n) & 1 : sign;
    d |= static_cast<std::make_unsigned_t<T>>(bit) << n;
  }
  return static_cast<T>(d);
}
// Each nibble of the selector takes a byte of {b, a}, or with its upper bit that byte's sign in all bits.
u32 permuted(u32 a, u32 b, u32 selector) {
  u32 d = 0;
  for (int n = 0; n < 4; n++) {
    const u32 which = selector >> 4 * n & 0xf;
    const auto byte = static_cast<u32>((u64{b} << 32 | a) >> 8 * (which & 7) & 0xff);
    d |= (which & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << 8 * n;
  }
  return d;
}
// Bit for bit, the table's bit of number a b c.
u32 looked_up(u32 a, u32 b, u32 c, u32 table) {
  u32 d = 0;
  for (int n = 0; n < 32; n++) d |= (table >> ((a >> n & 1) * 4 + (b >> n & 1) * 2 + (c >> n & 1)) & 1) << n;
  return d;
}

// Numbers are ordered, and equal to none but numbers; the comparisons with a 'u' are true of NaN.
template <class T>
void add_comparisons(Operations& all, const std::string& type, bool equality_only = false) {
  const auto name = [&](const char* op) { return fmt::format("setp.{}.{}", op, type); };
  value(all, name("eq"), [](T a, T b) { return a == b; });
  value(all, name("ne"), [](T a, T b) { return a < b || a > b; });
  if (equality_only) return;
  value(all, name("lt"), [](T a, T b) { return a < b; });
  value(all, name("le"), [](T a, T b) { return a <= b; });
  value(all, name("gt"), [](T a, T b) { return a > b; });
  value(all, name("ge"), [](T a, T b) { return a >= b; });
  if constexpr (std::is_floating_point_v<T>) {
    value(all, name("equ"), [](T a, T b) { return !(a < b || a > b); });
    value(all, name("neu"), [](T a, T b) { return !(a == b); });
    value(all, name("ltu"), [](T a, T b) { return !(a >= b); });
    value(all, name("leu"), [](T a, T b) { return !(a > b); });
    value(all, name("gtu"), [](T a, T b) { return !(a <= b); });
    value(all, name("geu"), [](T a, T b) { return !(a < b); });
    value(all, name("num"), [](T a, T b) { return !std::isnan(a) && !std::isnan(b); });
    value(all, name("nan"), [](T a, T b) { return std::isnan(a) || std::isnan(b); });
  }
}

// The number where one is NaN; -0 lies below +0.
template <class T>
T least(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  return a < b || (a == b && std::signbit(a)) ? a : b;
}
template <class T>
T flushed(T v) {
  return std::abs(v) < std::numeric_limits<T>::min() ? std::copysign(T{0}, v) : v;
}

template <class T>
void add_floats(Operations& all) {
  const std::string t = type_name<T>();
  value(all, "add." + t + " add.rn." + t, [](T a, T b) { return a + b; });
  value(all, "sub." + t + " sub.rn." + t, [](T a, T b) { return a - b; });
  value(all, "mul." + t + " mul.rn." + t, [](T a, T b) { return a * b; });
  value(all, "div.rn." + t, [](T a, T b) { return a / b; });
  value(all, "fma.rn." + t, [](T a, T b, T c) { return std::fma(a, b, c); });
  value(all, "rcp.rn." + t, [](T a) { return 1 / a; });
  value(all, "sqrt.rn." + t, [](T a) { return std::sqrt(a); });
  value(all, "neg." + t, [](T a) { return -a; });
  value(all, "abs." + t, [](T a) { return std::abs(a); });
  value(all, "copysign." + t, [](T a, T b) { return std::copysign(b, a); });
  value(all, "min." + t, [](T a, T b) { return least(a, b); });
  value(all, "max." + t, [](T a, T b) { return std::isnan(a) ? b : std::isnan(b) ? a : -least(-a, -b); });
}

// Rounded downward: the processor's own, in its other mode. Out of line, so that nothing is computed beforehand.
[[gnu::noinline]] void multiply_add_downward(float* d, const float* a, const float* b, const float* c) {
  std::fesetround(FE_DOWNWARD);
  for (int lane = 0; lane < warp_size; lane++) {
    volatile float x = a[lane], y = b[lane], z = c[lane];
    volatile float sum = std::fma(x, y, z);
    d[lane] = sum;
  }
  std::fesetround(FE_TONEAREST);
}
void fma_downward(Warp& w, const Instruction& i, uint32_t lanes) {
  float of[3][warp_size], d[warp_size];
  for (int n = 0; n < 3; n++)
    for (int lane = 0; lane < warp_size; lane++) of[n][lane] = w.get<float>(i, n + 1, lane);
  multiply_add_downward(d, of[0], of[1], of[2]);
  each_lane(lanes, [&](int lane) { w.set<float>(i, 0, lane, d[lane]); });
}

// With the carry of the instruction before, and leaving one (.cc): f(a, b, c) is the sum in more than 32 bits.
template <auto f, bool takes, bool leaves, int sources>
void with_carry(Warp& w, const Instruction& i, uint32_t lanes) {
  each_lane(lanes, [&](int lane) {
    const u32 a = w.get<u32>(i, 1, lane), b = w.get<u32>(i, 2, lane), c = sources > 2 ? w.get<u32>(i, 3, lane) : 0;
    const s64 sum = f(a, b, c, takes ? w.carry >> lane & 1 : 0);
    w.set<u32>(i, 0, lane, static_cast<u32>(sum));
    if (leaves)
      w.carry = (w.carry & ~(1u << lane)) | static_cast<u32>(sum >> 32 & 1) << lane;  // of a difference, its borrow
  });
}
template <auto f, int sources>
void add_carries(Operations& all, const std::string& op, const std::string& half) {
  const char* form = sources > 2 ? "w=www" : "w=ww";
  for (const char* t : {".u32", ".s32", ".b32"}) {
    add(all, op + half + ".cc" + t, form, with_carry<f, false, true, sources>);
    add(all, op + "c" + half + t, form, with_carry<f, true, false, sources>);
    add(all, op + "c" + half + ".cc" + t, form, with_carry<f, true, true, sources>);
  }
}
}  // namespace

void add_arithmetic(Operations& all) {
  add_integers<s16>(all), add_integers<u16>(all), add_integers<s32>(all), add_integers<u32>(all),
      add_integers<s64>(all), add_integers<u64>(all);
  add_wide<u16, u32>(all), add_wide<s16, s32>(all), add_wide<u32, u64>(all), add_wide<s32, s64>(all);
  add_bits<u16>(all), add_bits<u32>(all), add_bits<u64>(all);
  value(all, "bfe.u32", [](u32 a, u32 p, u32 n) { return extracted(a, p, n); });
  value(all, "bfe.s32", [](s32 a, u32 p, u32 n) { return extracted(a, p, n); });
  value(all, "prmt.b32", [](u32 a, u32 b, u32 s) { return permuted(a, b, s); });
  value(all, "lop3.b32", [](u32 a, u32 b, u32 c, u32 t) { return looked_up(a, b, c, t); });
  value(all, "and.pred", [](bool a, bool b) { return a && b; });
  value(all, "or.pred", [](bool a, bool b) { return a || b; });
  value(all, "xor.pred", [](bool a, bool b) { return a != b; });
  value(all, "not.pred", [](bool a) { return !a; });
  value(all, "mov.pred", [](bool a) { return a; });
  add_comparisons<s16>(all, "s16"), add_comparisons<u16>(all, "u16"), add_comparisons<s32>(all, "s32"),
      add_comparisons<u32>(all, "u32");
  add_comparisons<s64>(all, "s64"), add_comparisons<u64>(all, "u64"), add_comparisons<f32>(all, "f32"),
      add_comparisons<f64>(all, "f64");
  add_comparisons<u16>(all, "b16", true), add_comparisons<u32>(all, "b32", true),
      add_comparisons<u64>(all, "b64", true);
  value(all, "selp.b16 selp.u16 selp.s16", [](u16 a, u16 b, bool p) { return p ? a : b; });
  value(all, "selp.b32 selp.u32 selp.s32 selp.f32", [](u32 a, u32 b, bool p) { return p ? a : b; });
  value(all, "selp.b64 selp.u64 selp.s64 selp.f64", [](u64 a, u64 b, bool p) { return p ? a : b; });
  value(all, "mov.b16 mov.u16 mov.s16", [](u16 a) { return a; });
  value(all, "mov.b32 mov.u32 mov.s32 mov.f32", [](u32 a) { return a; });
  value(all, "mov.b64 mov.u64 mov.s64 mov.f64", [](u64 a) { return a; });

  add_floats<f32>(all), add_floats<f64>(all);
  add(all, "fma.rm.f32", "w=www", fma_downward);
  value(all, "ex2.approx.f32", [](f32 a) { return std::exp2(a); });
  value(all, "ex2.approx.ftz.f32", [](f32 a) { return flushed(std::exp2(flushed(a))); });
  value(all, "lg2.approx.f32", [](f32 a) { return std::log2(a); });
  value(all, "rcp.approx.f32", [](f32 a) { return 1 / a; });
  value(all, "rcp.approx.ftz.f32", [](f32 a) { return 1 / flushed(a); });
  // The upper half is computed; the lower one is 0.
  value(all, "rcp.approx.ftz.f64",
        [](f64 a) { return std::bit_cast<f64>(std::bit_cast<u64>(flushed(1 / flushed(a))) >> 32 << 32); });

  constexpr auto plus = [](u32 a, u32 b, u32, u32 carry) { return static_cast<s64>(u64{a} + b + carry); };
  constexpr auto minus = [](u32 a, u32 b, u32, u32 carry) { return s64{a} - b - carry; };
  constexpr auto low = [](u32 a, u32 b, u32 c, u32 carry) { return static_cast<s64>(u64{a * b} + c + carry); };
  constexpr auto high = [](u32 a, u32 b, u32 c, u32 carry) { return static_cast<s64>((u64{a} * b >> 32) + c + carry); };
  add_carries<plus, 2>(all, "add", "");
  add_carries<minus, 2>(all, "sub", "");
  add_carries<low, 3>(all, "mad", ".lo");
  add_carries<high, 3>(all, "mad", ".hi");
}

}  // namespace megalith::ptx
