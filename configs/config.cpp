#include "configs/config.h"

#include "configs/field_table.h"
#include "configs/rules.h"
#include "configs/suggest.h"
#include "kernels/base/check.h"

#include <toml++/toml.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

namespace megalith {
namespace {

std::string_view kind_name(const toml::node& node) {
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

std::optional<Value> scalar(const toml::node& node) {
  if (const auto* x = node.as_integer()) return x->get();
  if (const auto* x = node.as_floating_point()) return x->get();
  if (const auto* x = node.as_boolean()) return x->get();
  if (const auto* x = node.as_string()) return x->get();
  return {};
}

// "key = value", or the key alone where the value is no scalar.
std::string assignment(std::string_view key, const std::optional<Value>& value) {
  return value ? fmt::format("{} = {}", key, toml_text(*value)) : std::string(key);
}

// Builds one Config and remembers which line or override set each key.
class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  void read(std::string_view text, std::string_view only = "") {
    for (const auto& [section, node] : parse(text)) {
      if (!only.empty() && section.str() != only) continue;
      const toml::table* keys = node.as_table();
      if (!keys) refuse_as_section(section.str(), node);
      bool known = false;
      for (const Field& field : field_table()) known = known || field.section == section.str();
      CHECK(known || !keys->empty(), "{}: {}", line_of(node), unknown_section_message(section.str()));
      for (const auto& [key, value] : *keys) set(fmt::format("{}.{}", section.str(), key.str()), value, line_of(value));
    }
  }

  void override_with(const std::string& text) {
    const std::string where = fmt::format("override `{}`", shown(text));
    const size_t equals = text.find('=');
    const std::string name = trimmed(text.substr(0, equals));
    const size_t dot = name.find('.');
    CHECK(equals != std::string::npos && !name.empty(), "{} is malformed; write section.key=value", where);
    const Field* field = find_field(name);
    CHECK(field, "{}: {}", where, unknown_key_message(name));
    CHECK(dot != std::string::npos, "{} is malformed; write section.key=value", where);
    set_override(*field, trimmed(text.substr(equals + 1)), where);
  }

  const CommunicationConfig& communication() const { return config_.communication; }

  Config finish() {
    config_ = resolve(std::move(config_));
    if (const std::optional<Problem> problem = first_problem(config_)) {
      const auto set_at = set_at_.find(problem->key);
      FAIL("{}: {}", set_at == set_at_.end() ? source_ : set_at->second, problem->message);
    }
    return config_;
  }

 private:
  toml::table parse(std::string_view text) const {
    try {
      return toml::parse(text);
    } catch (const toml::parse_error& error) {
      const toml::source_position at = error.source().begin;
      const bool twice = error.description().find("redefine") != std::string_view::npos;
      FAIL("{}:{}:{}: not TOML: {}{}", source_, at.line, at.column, shown(error.description()),
           twice ? "; keep one of the two" : "");
    }
  }

  std::string line_of(const toml::node& node) const { return fmt::format("{}:{}", source_, node.source().begin.line); }

  [[noreturn]] void refuse_as_section(std::string_view name, const toml::node& node) const {
    bool section = false;
    for (const Field& field : field_table()) section = section || field.section == name;
    if (!section) FAIL("{}: {}", line_of(node), unknown_key_message(name));
    FAIL("{}: {} is {}, expected a section; write [{}] and its keys below", line_of(node),
         assignment(name, scalar(node)), kind_name(node), name);
  }

  void set(const std::string& name, const toml::node& node, const std::string& where) {
    const Field* field = find_field(name);
    CHECK(field, "{}: {}", where, unknown_key_message(name));
    std::optional<Value> value = scalar(node);
    const auto mismatch = [&] {
      return fmt::format("{}: {} is {}, expected {}", where, assignment(name, value), kind_name(node),
                         field->expected());
    };
    const auto expect = [&](bool right) { CHECK(right, "{}", mismatch()); };
    switch (field->kind) {
      case Field::Kind::integer: expect(node.is_integer()); break;
      case Field::Kind::boolean: expect(node.is_boolean()); break;
      case Field::Kind::real:
        expect(node.is_number());
        if (const auto* integer = node.as_integer()) value = static_cast<double>(integer->get());
        break;
      case Field::Kind::text:
      case Field::Kind::choice: expect(node.is_string()); break;
    }
    store(*field, *value, where);
  }

  void store(const Field& field, const Value& value, const std::string& where) {
    const std::string wrong = value_problem(field, value);
    CHECK(wrong.empty(), "{}: {} {}", where, assignment(field.name(), value), wrong);
    CHECK(field.set(config_, value), "{}: {} is not a choice, expected {}", where, assignment(field.name(), value),
          field.expected());
    set_at_[field.name()] = where;
  }

  // TOML if it is TOML; otherwise, and wherever a string is wanted and TOML would see another thing ("2024", "true"),
  // the text as it stands.
  void set_override(const Field& field, const std::string& text, const std::string& where) {
    const bool wants_string = field.kind == Field::Kind::text || field.kind == Field::Kind::choice;
    std::optional<toml::table> table = as_toml(text);
    if (!table || (wants_string && !table->begin()->second.is_string())) {
      CHECK(!text.starts_with('"') && !text.starts_with('\''), "{}: the quotes do not match; close or drop them",
            where);
      table = as_toml(toml_quoted(text));
      CHECK(table, "{}: the value is not UTF-8; use a name that is", where);
    }
    set(field.name(), table->begin()->second, where);
  }

  // Empty unless the text is exactly one value.
  static std::optional<toml::table> as_toml(const std::string& text) {
    try {
      toml::table table = toml::parse("value = " + text);
      if (table.size() == 1 && text.find('\n') == std::string::npos) return table;
    } catch (const toml::parse_error&) {
      // Not TOML, which is an answer here and no error.
    }
    return {};
  }

  static std::string trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
  }

  std::string source_;
  Config config_;
  std::map<std::string, std::string> set_at_;  // key -> "file:line" or "override `...`"
};

std::string read_file(const std::string& path) {
  std::error_code error;
  CHECK(!std::filesystem::is_directory(path, error),
        "cannot read configuration {}: it is a folder; name the TOML file in it", path);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  CHECK(file.is_open() && !file.bad() && !text.fail(), "cannot read configuration {}: {}; is the path right?", path,
        std::strerror(errno));
  return text.str();
}

}  // namespace

Config parse_config(std::string_view toml, std::string_view source_name, const std::vector<std::string>& overrides) {
  Reader reader(source_name);
  reader.read(toml);
  for (const std::string& text : overrides) reader.override_with(text);
  return reader.finish();
}

Config load_config(const std::string& toml_path, const std::vector<std::string>& overrides) {
  return parse_config(read_file(toml_path), toml_path, overrides);
}

CommunicationConfig load_communication(const std::string& toml_path, const std::vector<std::string>& overrides) {
  Reader reader(toml_path);
  const auto attempt = [](const auto& work) {
    try {
      work();
    } catch (const Error&) {
      // load_config reports it.
    }
  };
  attempt([&] { reader.read(read_file(toml_path), "communication"); });
  for (const std::string& text : overrides) attempt([&] { reader.override_with(text); });
  return reader.communication();
}

}  // namespace megalith
