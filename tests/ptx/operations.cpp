// Arithmetic, comparison, logic, moves, conversions, votes, shuffles and jumps, each lane for itself (PTX ISA,
// "Instruction set").
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <sstream>

#include "tests/ptx/machine.h"

namespace megalith::ptx {

namespace {
using s16 = int16_t;
using u16 = uint16_t;
using s32 = int32_t;
using u32 = uint32_t;
using s64 = int64_t;
using u64 = uint64_t;
using f32 = float;
using f64 = double;

// An instruction that makes one value of others, as a function: its types say what registers it takes.
template <class T>
constexpr char letter = std::is_same_v<T, bool> ? 'p'
                        : sizeof(T) <= 4        ? 'w'
                                                : 'l';

template <class F, class D, class... S, size_t... n>
void lanewise(Warp& w, const Instruction& i, uint32_t lanes, std::index_sequence<n...>) {
  const auto source = [&]<class T>(size_t at, T*) {
    if constexpr (std::is_same_v<T, bool>) {
      return w.predicate(i, static_cast<int>(at));
    } else {
      return w.lanes<T>(i.slots[at]);
    }
  };
  const auto value = []<class T>(auto from, int lane, T*) {
    if constexpr (std::is_same_v<T, bool>) {
      return (from >> lane & 1) != 0;
    } else {
      return from_register<T>(from[lane]);
    }
  };
  const std::tuple sources{source(n + 1, static_cast<S*>(nullptr))...};
  if constexpr (std::is_same_v<D, bool>) {
    uint32_t bits = 0;
    for (int lane = 0; lane < warp_size; lane++)
      bits |= static_cast<uint32_t>(F{}(value(std::get<n>(sources), lane, static_cast<S*>(nullptr))...)) << lane;
    w.set_predicate(i, 0, lanes, bits);
  } else {
    Stored<D>* to = w.lanes<D>(i.slots[0]);
    each_lane(lanes, [&](int lane) {
      to[lane] = to_register<D>(F{}(value(std::get<n>(sources), lane, static_cast<S*>(nullptr))...));
    });
  }
}
template <class Call>
struct Lanewise;
template <class F, class D, class... S>
struct Lanewise<D (F::*)(S...) const> {
  static std::string form() { return std::string{letter<D>, '=', letter<S>...}; }
  static void execute(Warp& w, const Instruction& i, uint32_t lanes) {
    lanewise<F, D, S...>(w, i, lanes, std::index_sequence_for<S...>());
  }
};

Operations* made;
// Under every one of these names, with blanks between.
template <class F>
void value(const std::string& names, F) {
  using Of = Lanewise<decltype(&F::operator())>;
  std::istringstream in(names);
  for (std::string name; in >> name;) made->emplace(name, Operation{Of::form(), Of::execute});
}
void add(const std::string& names, const char* form, Execute execute, Kind kind = Kind::plain) {
  std::istringstream in(names);
  for (std::string name; in >> name;) made->emplace(name, Operation{form, execute, kind});
}

// "op.TYPE" for the names of a type.
template <class T>
const char* type_name() {
  if constexpr (std::is_same_v<T, s16>) return "s16";
  if constexpr (std::is_same_v<T, u16>) return "u16";
  if constexpr (std::is_same_v<T, s32>) return "s32";
  if constexpr (std::is_same_v<T, u32>) return "u32";
  if constexpr (std::is_same_v<T, s64>) return "s64";
  if constexpr (std::is_same_v<T, u64>) return "u64";
  if constexpr (std::is_same_v<T, f32>) return "f32";
  if constexpr (std::is_same_v<T, f64>) return "f64";
}
template <class T>
std::string of(const std::string& op) {
  return op + "." + type_name<T>();
}

__extension__ using Signed128 = __int128;
__extension__ using Unsigned128 = unsigned __int128;
template <class T>
using Wide = std::conditional_t<std::is_signed_v<T>, Signed128, Unsigned128>;
template <class T>
constexpr int bits = 8 * sizeof(T);

// A shift by the register's width or more takes all bits out.
template <class T>
T shifted_right(T a, u32 by) {
  return static_cast<T>(a >> std::min<u32>(by, bits<T> - 1) >> (by >= bits<T> ? 1 : 0));
}

template <class T>
void add_integers() {
  using U = std::make_unsigned_t<T>;
  value(of<T>("add"), [](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); });
  value(of<T>("sub"), [](T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); });
  value(of<T>("mul.lo"), [](T a, T b) { return static_cast<T>(Wide<T>(a) * Wide<T>(b)); });
  value(of<T>("mul.hi"), [](T a, T b) { return static_cast<T>(Wide<T>(a) * Wide<T>(b) >> bits<T>); });
  value(of<T>("mad.lo"),
        [](T a, T b, T c) { return static_cast<T>(static_cast<U>(Wide<T>(a) * Wide<T>(b)) + static_cast<U>(c)); });
  // Unspecified where the divisor is 0; here all ones, so that it is seen.
  value(of<T>("div"),
        [](T a, T b) { return b == 0 ? static_cast<T>(~U{0}) : static_cast<T>(Wide<T>(a) / Wide<T>(b)); });
  value(of<T>("rem"),
        [](T a, T b) { return b == 0 ? static_cast<T>(~U{0}) : static_cast<T>(Wide<T>(a) % Wide<T>(b)); });
  value(of<T>("min"), [](T a, T b) { return std::min(a, b); });
  value(of<T>("max"), [](T a, T b) { return std::max(a, b); });
  value(of<T>("shr"), [](T a, u32 by) { return shifted_right(a, by); });
  if constexpr (std::is_signed_v<T>) {
    value(of<T>("neg"), [](T a) { return static_cast<T>(U{0} - static_cast<U>(a)); });
    value(of<T>("abs"), [](T a) { return a < 0 ? static_cast<T>(U{0} - static_cast<U>(a)) : a; });
  }
}
template <class T, class D>
void add_wide() {
  value(of<T>("mul.wide"), [](T a, T b) { return static_cast<D>(Wide<T>(a) * Wide<T>(b)); });
  value(of<T>("mad.wide"), [](T a, T b, D c) { return static_cast<D>(Wide<T>(a) * Wide<T>(b) + Wide<T>(c)); });
}

template <class T>
void add_bits() {
  const std::string b = ".b" + std::to_string(bits<T>);
  value("and" + b, [](T a, T c) { return static_cast<T>(a & c); });
  value("or" + b, [](T a, T c) { return static_cast<T>(a | c); });
  value("xor" + b, [](T a, T c) { return static_cast<T>(a ^ c); });
  value("not" + b, [](T a) { return static_cast<T>(~a); });
  value("shl" + b, [](T a, u32 by) { return by >= bits<T> ? T{0} : static_cast<T>(a << by); });
  value("shr" + b, [](T a, u32 by) { return shifted_right(a, by); });
  if constexpr (bits<T> >= 32) {
    value("clz" + b, [](T a) { return static_cast<u32>(std::countl_zero(a)); });
    value("popc" + b, [](T a) { return static_cast<u32>(std::popcount(a)); });
    // So many bits of a into c, from a position on.
    value("bfi" + b, [](T a, T c, u32 position, u32 length) {
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
void add_comparisons(const std::string& type, bool equality_only = false) {
  const auto name = [&](const char* op) { return fmt::format("setp.{}.{}", op, type); };
  value(name("eq"), [](T a, T b) { return a == b; });
  value(name("ne"), [](T a, T b) { return a < b || a > b; });
  if (equality_only) return;
  value(name("lt"), [](T a, T b) { return a < b; });
  value(name("le"), [](T a, T b) { return a <= b; });
  value(name("gt"), [](T a, T b) { return a > b; });
  value(name("ge"), [](T a, T b) { return a >= b; });
  if constexpr (std::is_floating_point_v<T>) {
    value(name("equ"), [](T a, T b) { return !(a < b || a > b); });
    value(name("neu"), [](T a, T b) { return !(a == b); });
    value(name("ltu"), [](T a, T b) { return !(a >= b); });
    value(name("leu"), [](T a, T b) { return !(a > b); });
    value(name("gtu"), [](T a, T b) { return !(a <= b); });
    value(name("geu"), [](T a, T b) { return !(a < b); });
    value(name("num"), [](T a, T b) { return !std::isnan(a) && !std::isnan(b); });
    value(name("nan"), [](T a, T b) { return std::isnan(a) || std::isnan(b); });
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
void add_floats() {
  const std::string t = type_name<T>();
  value("add." + t + " add.rn." + t, [](T a, T b) { return a + b; });
  value("sub." + t + " sub.rn." + t, [](T a, T b) { return a - b; });
  value("mul." + t + " mul.rn." + t, [](T a, T b) { return a * b; });
  value("div.rn." + t, [](T a, T b) { return a / b; });
  value("fma.rn." + t, [](T a, T b, T c) { return std::fma(a, b, c); });
  value("rcp.rn." + t, [](T a) { return 1 / a; });
  value("sqrt.rn." + t, [](T a) { return std::sqrt(a); });
  value("neg." + t, [](T a) { return -a; });
  value("abs." + t, [](T a) { return std::abs(a); });
  value("min." + t, [](T a, T b) { return least(a, b); });
  value("max." + t, [](T a, T b) { return std::isnan(a) ? b : std::isnan(b) ? a : -least(-a, -b); });
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

template <class S, class... D>
void add_conversions_of() {
  (value(fmt::format("cvt.{}.{}", type_name<D>(), type_name<S>()), [](S v) { return static_cast<D>(v); }), ...);
}
template <class... S>
void add_integer_conversions() {
  (add_conversions_of<S, s16, u16, s32, u32, s64, u64>(), ...);
  (value(of<S>("cvt.rn.f32"), [](S v) { return static_cast<f32>(v); }), ...);
  (value(of<S>("cvt.rn.f64"), [](S v) { return static_cast<f64>(v); }), ...);
  (value(fmt::format("cvt.rzi.{}.f32", type_name<S>()), [](f32 v) { return to_integer<S, f32, false>(v); }), ...);
  (value(fmt::format("cvt.rzi.{}.f64", type_name<S>()), [](f64 v) { return to_integer<S, f64, false>(v); }), ...);
  (value(fmt::format("cvt.rni.{}.f32", type_name<S>()), [](f32 v) { return to_integer<S, f32, true>(v); }), ...);
  (value(fmt::format("cvt.rni.{}.f64", type_name<S>()), [](f64 v) { return to_integer<S, f64, true>(v); }), ...);
}
void add_conversions() {
  add_integer_conversions<s16, u16, s32, u32, s64, u64>();
  value("cvt.f64.f32", [](f32 v) { return static_cast<f64>(v); });
  value("cvt.rn.f32.f64", [](f64 v) { return static_cast<f32>(v); });
  value("cvt.rzi.f64.f64", [](f64 v) { return std::trunc(v); });
  value("cvt.rni.f64.f64", [](f64 v) { return std::nearbyint(v); });
  value("cvt.rzi.f32.f32", [](f32 v) { return std::trunc(v); });
  value("cvt.rni.f32.f32", [](f32 v) { return std::nearbyint(v); });
  value("cvt.sat.f32.f32", [](f32 v) { return v > 0 ? std::min(v, 1.0f) : 0.0f; });  // NaN is 0
  value("cvt.f32.f16", [](u16 h) {
    const int exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;
    const float sign = h & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 0x1f)
      return fraction ? std::numeric_limits<float>::quiet_NaN() : sign * std::numeric_limits<float>::infinity();
    return sign * (exponent ? std::ldexp(static_cast<float>(1024 + fraction), exponent - 25)
                            : std::ldexp(static_cast<float>(fraction), -24));
  });
  value("cvt.rn.f16.f32", [](f32 v) { return half_bits(v); });
  value("cvt.rn.bf16.f32", [](f32 v) { return bfloat16_bits(v); });
  // The first goes to the upper half.
  value("cvt.rn.f16x2.f32", [](f32 a, f32 b) { return half_bits(a) << 16 | half_bits(b); });
  value("cvt.rn.bf16x2.f32", [](f32 a, f32 b) { return bfloat16_bits(a) << 16 | bfloat16_bits(b); });
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
void add_carries(const std::string& op, const std::string& half) {
  const char* form = sources > 2 ? "w=www" : "w=ww";
  for (const char* t : {".u32", ".s32", ".b32"}) {
    add(op + half + ".cc" + t, form, with_carry<f, false, true, sources>);
    add(op + "c" + half + t, form, with_carry<f, true, false, sources>);
    add(op + "c" + half + ".cc" + t, form, with_carry<f, true, true, sources>);
  }
}

enum class Shuffle { up, down, bfly, idx };
// The lane that each takes from, and whether it lies within the segment; else its own.
template <Shuffle mode, bool tells>
void shuffle(Warp& w, const Instruction& i, uint32_t lanes) {
  constexpr int first = tells ? 2 : 1;
  uint32_t values[warp_size] = {}, inside = 0;
  each_lane(lanes, [&](int lane) { values[lane] = w.get<u32>(i, first, lane); });
  each_lane(lanes, [&](int lane) {
    const int b = static_cast<int>(w.get<u32>(i, first + 1, lane) & 31);
    const u32 c = w.get<u32>(i, first + 2, lane);
    const int clamp = static_cast<int>(c & 31), segment = static_cast<int>(c >> 8 & 31);
    const int least_lane = lane & segment, last = (lane & segment) | (clamp & ~segment);
    int from = lane;
    bool is_inside = false;
    switch (mode) {
      case Shuffle::up: from = lane - b, is_inside = from >= last; break;
      case Shuffle::down: from = lane + b, is_inside = from <= last; break;
      case Shuffle::bfly: from = lane ^ b, is_inside = from <= last; break;
      case Shuffle::idx: from = least_lane | (b & ~segment), is_inside = from <= last; break;
    }
    if (!is_inside) from = lane;
    CHECK(lanes >> from & 1, "lane {} takes from lane {}, which its mask {:#x} does not name", lane, from, lanes);
    w.set<u32>(i, 0, lane, values[from]);
    inside |= static_cast<uint32_t>(is_inside) << lane;
  });
  if (tells) w.set_predicate(i, 1, lanes, inside);
}
enum class Vote { any, all, uni, ballot };
template <Vote mode>
void vote(Warp& w, const Instruction& i, uint32_t lanes) {
  const uint32_t votes = w.predicate(i, 1) & lanes;
  const bool result = mode == Vote::any ? votes != 0 : votes == lanes || (mode == Vote::uni && votes == 0);
  if (mode == Vote::ballot) {
    each_lane(lanes, [&](int lane) { w.set<u32>(i, 0, lane, votes); });
  } else {
    w.set_predicate(i, 0, lanes, result ? ~0u : 0u);
  }
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
}  // namespace

void add_arithmetic(Operations& all) {
  made = &all;
  add_integers<s16>(), add_integers<u16>(), add_integers<s32>(), add_integers<u32>(), add_integers<s64>(),
      add_integers<u64>();
  add_wide<u16, u32>(), add_wide<s16, s32>(), add_wide<u32, u64>(), add_wide<s32, s64>();
  add_bits<u16>(), add_bits<u32>(), add_bits<u64>();
  value("bfe.u32", [](u32 a, u32 p, u32 n) { return extracted(a, p, n); });
  value("bfe.s32", [](s32 a, u32 p, u32 n) { return extracted(a, p, n); });
  value("prmt.b32", [](u32 a, u32 b, u32 s) { return permuted(a, b, s); });
  value("lop3.b32", [](u32 a, u32 b, u32 c, u32 t) { return looked_up(a, b, c, t); });
  value("and.pred", [](bool a, bool b) { return a && b; });
  value("or.pred", [](bool a, bool b) { return a || b; });
  value("xor.pred", [](bool a, bool b) { return a != b; });
  value("not.pred", [](bool a) { return !a; });
  value("mov.pred", [](bool a) { return a; });
  add_comparisons<s16>("s16"), add_comparisons<u16>("u16"), add_comparisons<s32>("s32"), add_comparisons<u32>("u32");
  add_comparisons<s64>("s64"), add_comparisons<u64>("u64"), add_comparisons<f32>("f32"), add_comparisons<f64>("f64");
  add_comparisons<u16>("b16", true), add_comparisons<u32>("b32", true), add_comparisons<u64>("b64", true);
  value("selp.b16 selp.u16 selp.s16", [](u16 a, u16 b, bool p) { return p ? a : b; });
  value("selp.b32 selp.u32 selp.s32 selp.f32", [](u32 a, u32 b, bool p) { return p ? a : b; });
  value("selp.b64 selp.u64 selp.s64 selp.f64", [](u64 a, u64 b, bool p) { return p ? a : b; });
  value("mov.b16 mov.u16 mov.s16", [](u16 a) { return a; });
  value("mov.b32 mov.u32 mov.s32 mov.f32", [](u32 a) { return a; });
  value("mov.b64 mov.u64 mov.s64 mov.f64", [](u64 a) { return a; });
  add("mov.b32", "2w=w", unpack<u32, u16>);
  add("mov.b32", "w=2w", pack<u32, u16>);
  add("mov.b64", "2w=l", unpack<u64, u32>);
  add("mov.b64", "l=2w", pack<u64, u32>);

  add_floats<f32>(), add_floats<f64>();
  add("fma.rm.f32", "w=www", fma_downward);
  value("ex2.approx.f32", [](f32 a) { return std::exp2(a); });
  value("ex2.approx.ftz.f32", [](f32 a) { return flushed(std::exp2(flushed(a))); });
  value("lg2.approx.f32", [](f32 a) { return std::log2(a); });
  value("rcp.approx.f32", [](f32 a) { return 1 / a; });
  value("rcp.approx.ftz.f32", [](f32 a) { return 1 / flushed(a); });
  // The upper half is computed; the lower one is 0.
  value("rcp.approx.ftz.f64",
        [](f64 a) { return std::bit_cast<f64>(std::bit_cast<u64>(flushed(1 / flushed(a))) >> 32 << 32); });
  add_conversions();

  constexpr auto plus = [](u32 a, u32 b, u32, u32 carry) { return static_cast<s64>(u64{a} + b + carry); };
  constexpr auto minus = [](u32 a, u32 b, u32, u32 carry) { return s64{a} - b - carry; };
  constexpr auto low = [](u32 a, u32 b, u32 c, u32 carry) { return static_cast<s64>(u64{a * b} + c + carry); };
  constexpr auto high = [](u32 a, u32 b, u32 c, u32 carry) { return static_cast<s64>((u64{a} * b >> 32) + c + carry); };
  add_carries<plus, 2>("add", "");
  add_carries<minus, 2>("sub", "");
  add_carries<low, 3>("mad", ".lo");
  add_carries<high, 3>("mad", ".hi");

  const auto add_shuffle = [](const char* name, Execute plain, Execute telling) {
    add(name, "w=wwww", plain, Kind::masked);
    add(name, "wp=wwww", telling, Kind::masked);
  };
  add_shuffle("shfl.sync.up.b32", shuffle<Shuffle::up, false>, shuffle<Shuffle::up, true>);
  add_shuffle("shfl.sync.down.b32", shuffle<Shuffle::down, false>, shuffle<Shuffle::down, true>);
  add_shuffle("shfl.sync.bfly.b32", shuffle<Shuffle::bfly, false>, shuffle<Shuffle::bfly, true>);
  add_shuffle("shfl.sync.idx.b32", shuffle<Shuffle::idx, false>, shuffle<Shuffle::idx, true>);
  add("vote.sync.any.pred", "p=pw", vote<Vote::any>, Kind::masked);
  add("vote.sync.all.pred", "p=pw", vote<Vote::all>, Kind::masked);
  add("vote.sync.uni.pred", "p=pw", vote<Vote::uni>, Kind::masked);
  add("vote.sync.ballot.b32", "w=pw", vote<Vote::ballot>, Kind::masked);

  add("bra bra.uni", "L", nullptr, Kind::branch);
  add("ret exit", "", nullptr, Kind::end);
}

}  // namespace megalith::ptx
