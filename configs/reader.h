// Reads TOML and overrides into a record, by its table of fields. Inside configs/ only.
#pragma once

#include "configs/field.h"
#include "configs/foreign_words.h"
#include "configs/suggest.h"
#include "kernels/system/check.h"

#include <toml++/toml.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace megalith {

// Reads a configuration file. Error: it cannot be read, is not a plain file, or is too large.
std::string read_configuration(const std::string& path);

// Returns the largest number of parts of a key (a.b.c has three) in a text, as far as it is TOML. The library nests a
// table for each part, and recurses to destroy them.
int deepest_key(std::string_view toml);
constexpr int most_key_parts = 16;

inline std::string_view kind_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::none: return "nothing";
    case toml::node_type::table: return "a section";
    case toml::node_type::array: return "an array";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a real number";
    case toml::node_type::boolean: return "a boolean";
    case toml::node_type::date: return "a date";
    case toml::node_type::time: return "a time";
    case toml::node_type::date_time: return "a date and time";
  }
  return "unknown";
}

// Returns a scalar or a list of strings; nullopt for other values.
inline std::optional<Value> scalar(const toml::node& node) {
  if (const auto* x = node.as_integer()) return x->get();
  if (const auto* x = node.as_floating_point()) return x->get();
  if (const auto* x = node.as_boolean()) return x->get();
  if (const auto* x = node.as_string()) return x->get();
  if (const auto* list = node.as_array()) {
    Words words;
    for (const toml::node& word : *list) {
      if (!word.is_string()) return {};
      words.push_back(word.as_string()->get());
    }
    return words;
  }
  return {};
}

// Prints "key = value", or only the key if the value is not a scalar.
inline std::string assignment(std::string_view key, const std::optional<Value>& value) {
  return value ? fmt::format("{} = {}", key, toml_text(*value)) : std::string(key);
}

// Builds one record and remembers which line or override set each key. Errors name the source, the line or override,
// the key, its value and what was expected.
template <class Record>
class Reader {
 public:
  // The table must outlive the reader; `source` names the text in messages. Unset keys are as in `defaults`.
  Reader(const Table<Record>& table, std::string_view source, Record defaults = {})
      : table_(table), keys_(table.begin(), table.end()), source_(source), record_(std::move(defaults)) {}

  void read(std::string_view text, std::string_view only = "") {
    for (const auto& [section, node] : parse(text)) {
      if (!only.empty() && section.str() != only) continue;
      const toml::table* keys = node.as_table();
      if (!keys) refuse_as_section(section.str(), node);
      bool known = false;
      for (const Key& field : keys_) known = known || field.section == section.str();
      CHECK(known || !keys->empty(), "{}: {}", line_of(node), unknown_section_message(section.str(), keys_));
      for (const auto& [key, value] : *keys) set(fmt::format("{}.{}", section.str(), key.str()), value, line_of(value));
    }
  }

  void override_with(const std::string& text) {
    const std::string where = fmt::format("override `{}`", shown(text));
    const size_t equals = text.find('=');
    const std::string name = trimmed(text.substr(0, equals));
    const size_t dot = name.find('.');
    CHECK(equals != std::string::npos && !name.empty(), "{} is malformed; write section.key=value", where);
    const FieldOf<Record>* field = find_field(table_, name);
    CHECK(field, "{}: {}", where, unknown_key_message(name, keys_));
    CHECK(dot != std::string::npos, "{} is malformed; write section.key=value", where);
    set_override(*field, trimmed(text.substr(equals + 1)), where);
  }

  const Record& record() const { return record_; }
  // Returns where a key was set, "file:line" or "override `...`"; "" if it was not.
  std::string where_set(const std::string& name) const {
    const auto found = set_at_.find(name);
    return found == set_at_.end() ? "" : found->second;
  }

 private:
  toml::table parse(std::string_view text) const {
    CHECK(deepest_key(text) <= most_key_parts, "{}: a key has {} parts; keys here have two, as in section.key", source_,
          deepest_key(text));
    try {
      return toml::parse(text);
    } catch (const toml::parse_error& error) {
      const toml::source_position at = error.source().begin;
      const bool twice = error.description().find("redefine") != std::string_view::npos;
      bool out_of_range = false;
      for (const char* why : {"not representable in 64 bits", "could not be interpreted as a value"})
        out_of_range = out_of_range || error.description().find(why) != std::string_view::npos;
      FAIL("{}:{}:{}: {}: {}{}", source_, at.line, at.column, out_of_range ? "a number is out of range" : "not TOML",
           shown(error.description()), twice ? "; keep one of the two" : "");
    }
  }

  std::string line_of(const toml::node& node) const { return fmt::format("{}:{}", source_, node.source().begin.line); }

  [[noreturn]] void refuse_as_section(std::string_view name, const toml::node& node) const {
    bool section = false;
    for (const Key& field : keys_) section = section || field.section == name;
    if (!section) FAIL("{}: {}", line_of(node), unknown_key_message(name, keys_));
    FAIL("{}: {} is {}, expected a section; write [{}] with its keys below", line_of(node),
         assignment(name, scalar(node)), kind_name(node), name);
  }

  void set(const std::string& name, const toml::node& node, const std::string& where) {
    const FieldOf<Record>* field = find_field(table_, name);
    CHECK(field, "{}: {}", where, unknown_key_message(name, keys_));
    std::optional<Value> value = scalar(node);
    const auto mismatch = [&] {
      return fmt::format("{}: {} is {}, expected {}", where, assignment(name, value), kind_name(node),
                         field->expected());
    };
    const auto expect = [&](bool right) { CHECK(right, "{}", mismatch()); };
    switch (field->kind) {
      case Key::Kind::integer:
        // 1e5 is an integer. Values beyond a range or 64 bits are reported below.
        if (const auto* real = node.as_floating_point(); real && std::floor(real->get()) == real->get()) {
          if (std::abs(real->get()) <= NumberRange::largest_integer) value = static_cast<int64_t>(real->get());
        } else {
          expect(node.is_integer());
        }
        break;
      case Key::Kind::boolean: expect(node.is_boolean()); break;
      case Key::Kind::real:
        expect(node.is_number());
        if (const auto* integer = node.as_integer()) value = static_cast<double>(integer->get());
        break;
      case Key::Kind::text: expect(node.is_string() || (field->may_list && node.is_array() && value)); break;
      case Key::Kind::choice: expect(node.is_string()); break;
    }
    store(*field, *value, where);
  }

  void store(const FieldOf<Record>& field, const Value& value, const std::string& where) {
    const std::string wrong = value_problem(field, value);
    CHECK(wrong.empty(), "{}: {} {}", where, assignment(field.name(), value), wrong);
    if (!field.set(record_, value)) {
      const std::string* word = std::get_if<std::string>(&value);
      const std::string known = word ? foreign_word_message(*word, field.choices) : "";
      FAIL("{}: {} is not a choice, expected {}{}{}", where, assignment(field.name(), value), field.expected(),
           known.empty() ? "" : "; ", known);
    }
    set_at_[field.name()] = where;
  }

  // Parses the text as TOML if possible. Otherwise, or if a string is wanted and TOML reads another type ("2024"),
  // takes the text itself.
  void set_override(const FieldOf<Record>& field, const std::string& text, const std::string& where) {
    const bool wants_string = field.kind == Key::Kind::text || field.kind == Key::Kind::choice;
    std::optional<toml::table> table = as_toml(text);
    if (!table && (field.kind == Key::Kind::integer || field.kind == Key::Kind::real)) table = as_number(text);
    const bool is_list = table && field.may_list && table->begin()->second.is_array();
    if (!table || (wants_string && !is_list && !table->begin()->second.is_string())) {
      CHECK(!text.starts_with('"') && !text.starts_with('\''), "{}: the quotes do not match; close or remove them",
            where);
      table = as_toml(toml_quoted(text));
      CHECK(table, "{}: the value is not UTF-8; use a name that is", where);
    }
    set(field.name(), table->begin()->second, where);
  }

  // Returns a table if the text is exactly one value.
  static std::optional<toml::table> as_toml(const std::string& text) {
    if (deepest_key(text) > most_key_parts) return {};
    try {
      toml::table table = toml::parse("value = " + text);
      if (table.size() == 1 && text.find('\n') == std::string::npos) return table;
    } catch (const toml::parse_error&) {
      // The text is not TOML.
    }
    return {};
  }

  // Returns a table if the text is a decimal number; infinite if a double cannot hold it.
  static std::optional<toml::table> as_number(std::string_view text) {
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data() + (text.starts_with('+') ? 1 : 0), end, value);
    if (last != end || error == std::errc::invalid_argument) return {};
    if (error == std::errc::result_out_of_range) value = std::numeric_limits<double>::infinity();
    toml::table table;
    table.insert("value", value);
    return table;
  }

  static std::string trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
  }

  const Table<Record>& table_;
  const std::vector<Key> keys_;
  std::string source_;
  Record record_;
  std::map<std::string, std::string> set_at_;  // key -> "file:line" or "override `...`"
};

}  // namespace megalith
