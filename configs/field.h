// A Field is one key of a TOML file that is read into a record (Config, Hardware). It is declared once; reading,
// printing, lists of options and error messages use it. Inside configs/ only.
//
// A Field reads and writes its member through Value, one of the five kinds of TOML value here. Choices are passed as
// words. A list of strings is one string, in which each ends with a newline.
#pragma once

#include "configs/choices.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace megalith {

using Words = std::vector<std::string>;
using Value = std::variant<int64_t, double, bool, std::string, Words>;

// The range of a number. Integers are compared as doubles, so none may reach 2^53, where doubles stop being exact.
struct NumberRange {
  static constexpr double largest_integer = 9007199254740991.0;  // 2^53 - 1
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;
  bool max_excluded = false;

  bool holds(double x) const;  // false for NaN and infinities
  std::string text() const;    // "1 to 4096", "above 0", "0 to below 1"
};

NumberRange between(double min, double max);
NumberRange from_to_below(double min, double max);
NumberRange at_least(double min);
NumberRange above(double min);

// The name of a field, and its legal values.
struct Key {
  enum class Kind { integer, real, boolean, text, choice };

  std::string_view section;
  std::string_view key;
  Kind kind;
  std::string_view unit;  // empty if it has none
  NumberRange range;      // integers and reals only
  std::vector<std::string> choices;
  bool may_list = false;  // a string that may also be a list of strings
  std::string_view help;  // one sentence, no full stop

  std::string name() const;      // "model.layers"
  std::string expected() const;  // "an integer (layers, 1 to 10000)"
};

template <class Record>
struct FieldOf : Key {
  std::function<Value(const Record&)> get;
  // Sets the member to a value of the field's kind. Returns false if it is not one of the choices.
  std::function<bool(Record&, const Value&)> set;
};

template <class Record>
using Table = std::vector<FieldOf<Record>>;

template <class Record>
const FieldOf<Record>* find_field(const Table<Record>& table, std::string_view name) {
  for (const FieldOf<Record>& field : table)
    if (field.name() == name) return &field;
  return nullptr;
}

// Returns the fault of a value of the right kind, "is out of range, expected ...", or "".
std::string value_problem(const Key& key, const Value& value);

// Prints TOML that reads back to the same value, to the last bit.
std::string toml_text(const Value& value);
std::string toml_quoted(std::string_view text);

// Returns a string that may be a list: unchanged, or as its lines.
Value value_of_lines(const std::string& text);
std::string lines_of_value(const Value& value);

template <class Member>
constexpr Key::Kind kind_of() {
  if constexpr (std::is_same_v<Member, int64_t>) return Key::Kind::integer;
  if constexpr (std::is_same_v<Member, double>) return Key::Kind::real;
  if constexpr (std::is_same_v<Member, bool>) return Key::Kind::boolean;
  if constexpr (std::is_same_v<Member, std::string>) return Key::Kind::text;
  return Key::Kind::choice;
}

// Adds the fields of one section.
template <class Record, class Section>
class Rows {
 public:
  Rows(Table<Record>& table, std::string_view name, Section Record::*section)
      : table_(table), name_(name), section_(section) {}

  template <class Member>
  void number(std::string_view key, Member Section::*member, std::string_view unit, NumberRange range,
              std::string_view help) {
    static_assert(std::is_same_v<Member, int64_t> || std::is_same_v<Member, double>);
    if (std::is_same_v<Member, int64_t>) range.max = std::min(range.max, NumberRange::largest_integer);
    Key& field = add(key, member, help);
    field.unit = unit;
    field.range = range;
  }

  template <class Member>
  void word(std::string_view key, Member Section::*member, std::string_view help) {
    Key& field = add(key, member, help);
    if constexpr (kind_of<Member>() == Key::Kind::choice) field.choices = choice_words<Member>();
  }

  // A string or a list of strings.
  void word_or_list(std::string_view key, std::string Section::*member, std::string_view help) {
    add(key, member, help);
    FieldOf<Record>& field = table_.back();
    field.may_list = true;
    const auto section = section_;
    field.get = [=](const Record& record) { return value_of_lines(record.*section.*member); };
    field.set = [=](Record& record, const Value& value) {
      record.*section.*member = lines_of_value(value);
      return true;
    };
  }

 private:
  template <class Member>
  Key& add(std::string_view key, Member Section::*member, std::string_view help) {
    FieldOf<Record> field;
    field.section = name_;
    field.key = key;
    field.kind = kind_of<Member>();
    field.help = help;
    const auto section = section_;
    if constexpr (kind_of<Member>() == Key::Kind::choice) {
      field.get = [=](const Record& record) -> Value { return to_string(record.*section.*member); };
      field.set = [=](Record& record, const Value& value) {
        const std::optional<Member> choice = parse_choice<Member>(std::get<std::string>(value));
        if (choice) record.*section.*member = *choice;
        return choice.has_value();
      };
    } else {
      field.get = [=](const Record& record) -> Value { return record.*section.*member; };
      field.set = [=](Record& record, const Value& value) {
        record.*section.*member = std::get<Member>(value);
        return true;
      };
    }
    return table_.emplace_back(std::move(field));
  }

  Table<Record>& table_;
  std::string_view name_;
  Section Record::*section_;
};

}  // namespace megalith
