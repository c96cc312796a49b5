// A Field is one key of a TOML file that is read into a record (Config, Hardware): declared once, and reading,
// printing, lists of options and error messages all follow. Inside configs/ only; others see what follows from it in
// config.h and hardware.h.
//
// A Field reads and writes its member through Value, the five kinds of thing a TOML key can hold here. Choices travel
// as their words. A list of strings is kept as one string, of lines that each end.
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

// What a field is called and may hold.
struct Key {
  enum class Kind { integer, real, boolean, text, choice };

  std::string_view section;
  std::string_view key;
  Kind kind;
  std::string_view unit;  // empty where there is none
  NumberRange range;      // of integers and reals
  std::vector<std::string> choices;
  bool may_list = false;  // a text that may be a list of strings as well
  std::string_view help;  // one sentence, no full stop

  std::string name() const;      // "model.layers"
  std::string expected() const;  // "an integer (layers, 1 to 10000)"
};

template <class Record>
struct FieldOf : Key {
  std::function<Value(const Record&)> get;
  // The value's kind is the field's. False: not one of the choices.
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

// Empty, or what is wrong with a value of the right kind: "is out of range, expected ...".
std::string value_problem(const Key& key, const Value& value);

// As TOML that reads back to the same value, to the last bit.
std::string toml_text(const Value& value);
std::string toml_quoted(std::string_view text);

// What a string holds that may be a list: itself, or its lines; and back.
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

// Adds the rows of one section; remembers its name and where it lies in the record.
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
