// Instructions that each lane executes for itself, as functions of values.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/ptx/machine.h"

namespace megalith::ptx {

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

// Under every one of these names, with blanks between.
template <class F>
void value(Operations& all, const std::string& names, F) {
  using Of = Lanewise<decltype(&F::operator())>;
  std::istringstream in(names);
  for (std::string name; in >> name;) all.emplace(name, Operation{Of::form(), Of::execute});
}
inline void add(Operations& all, const std::string& names, const char* form, Execute execute, Kind kind = Kind::plain) {
  std::istringstream in(names);
  for (std::string name; in >> name;) all.emplace(name, Operation{form, execute, kind});
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

template <class T>
constexpr int bits = 8 * sizeof(T);

}  // namespace megalith::ptx
