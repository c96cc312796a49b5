// The table that Config is read by: one Field a key. Inside configs/ only; others see what follows from it in config.h.
//
// A Field reads and writes its member through Value, the four kinds of thing a TOML key can hold here. Choices travel
// as their words.
#pragma once

#include "configs/config.h"

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace megalith {

using Value = std::variant<int64_t, double, bool, std::string>;

// What a number may be. Integers are compared as doubles, so none may reach 2^53, where doubles stop being exact.
struct NumberRange {
  static constexpr double largest_integer = 9007199254740991.0;  // 2^53 - 1
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;
  bool max_excluded = false;

  bool holds(double x) const;  // never for NaN or an infinity
  std::string text() const;    // "1 to 4096", "above 0", "0 to below 1"
};

NumberRange between(double min, double max);
NumberRange from_to_below(double min, double max);
NumberRange at_least(double min);
NumberRange above(double min);

struct Field {
  enum class Kind { integer, real, boolean, text, choice };

  std::string_view section;
  std::string_view key;
  Kind kind;
  std::string_view unit;  // empty where there is none
  NumberRange range;      // of integers and reals
  std::vector<std::string> choices;
  std::string_view help;  // one sentence, no full stop

  std::function<Value(const Config&)> get;
  // The value's kind is the field's. False: not one of the choices.
  std::function<bool(Config&, const Value&)> set;

  std::string name() const;      // "model.layers"
  std::string expected() const;  // "an integer (layers, 1 to 10000)"
};

// Every option, in the order it is printed. Built once; immutable.
const std::vector<Field>& field_table();

const Field* find_field(std::string_view name);

// Empty, or what is wrong with a value of the right kind: "is out of range, expected ...".
std::string value_problem(const Field& field, const Value& value);

// As TOML that reads back to the same value, to the last bit.
std::string toml_text(const Value& value);
std::string toml_quoted(std::string_view text);

}  // namespace megalith
