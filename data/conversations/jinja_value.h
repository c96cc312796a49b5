// The values of a Jinja template, with Python's operators on them. Inside data/ only.
//
// Errors name the operation and the kind of value that does not have it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

namespace megalith::jinja {

using Ordered = nlohmann::ordered_json;

constexpr size_t most_text = 64 << 20;  // bytes of all texts in one rendering
constexpr int64_t longest_range = 1'000'000;

struct Value;
struct Arguments {
  std::vector<Value> by_place;
  std::map<std::string, Value> by_name;
};
using Function = std::function<Value(const Arguments&)>;
using Members = std::map<std::string, Value>;
struct Undefined {
  std::string name;
};

// A value of a JSON type, an undefined value, a function, or an object whose members can change.
struct Value : std::variant<Ordered, Undefined, Function, std::shared_ptr<Members>> {
  using variant::variant;
  Value(const char* text) : variant(Ordered(text)) {}
  Value(std::string text) : variant(Ordered(std::move(text))) {}
  Value(bool value) : variant(Ordered(value)) {}
  Value(int64_t value) : variant(Ordered(value)) {}
  const Ordered* json() const { return std::get_if<Ordered>(this); }
  bool is_defined() const { return !std::holds_alternative<Undefined>(*this); }
};

// Names the kind of a value, for messages.
std::string kind_of(const Value& v);
bool is_true(const Value& v);

// `what` is the operation. Error, which names it, if the value is of another kind.
const Ordered& json_of(const Value& v, const char* what);
const std::string& text_of(const Value& v, const char* what);
int64_t whole_of(const Value& v, const char* what);

// Appends a value as Python's json.dumps(ensure_ascii=False) writes it; `indent` < 0: on one line.
void dump(const Ordered& json, int indent, int depth, std::string& out);
// Returns a value as Python's str() writes it.
std::string to_text(const Value& v);

bool is_equal(const Value& a, const Value& b);
std::vector<std::string> characters_of(const std::string& text);
int64_t size_of(const Value& v);  // len()
bool contains(const Value& all, const Value& one);
// Returns what a loop visits: the elements of a list, the keys of a mapping or the characters of a text.
std::vector<Ordered> elements_of(const Value& v);

}  // namespace megalith::jinja
