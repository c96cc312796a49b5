#include "data/jinja.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <variant>

#include "data/characters.h"
#include "data/jinja_syntax.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {

namespace jinja {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr int64_t most_work = 2'000'000;  // expressions and statements
constexpr size_t most_text = 64 << 20;    // bytes of all texts that are made
constexpr int most_calls = 100;           // of macros, in one another
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

// A value of JSON's kinds, or nothing, or what is called, or an object whose members change.
struct Value : std::variant<Ordered, Undefined, Function, std::shared_ptr<Members>> {
  using variant::variant;
  Value(const char* text) : variant(Ordered(text)) {}
  Value(std::string text) : variant(Ordered(std::move(text))) {}
  Value(bool value) : variant(Ordered(value)) {}
  Value(int64_t value) : variant(Ordered(value)) {}
  const Ordered* json() const { return std::get_if<Ordered>(this); }
  bool is_defined() const { return !std::holds_alternative<Undefined>(*this); }
};

std::string kind_of(const Value& v) {
  if (const Ordered* json = v.json()) return json->type_name();
  if (const auto* undefined = std::get_if<Undefined>(&v)) return undefined->name + ", which is undefined,";
  return std::holds_alternative<Function>(v) ? "a function" : "an object";
}

bool is_true(const Value& v) {
  const Ordered* json = v.json();
  if (!json) return v.is_defined();
  if (json->is_boolean()) return json->get<bool>();
  if (json->is_number()) return json->get<double>() != 0;
  if (json->is_string()) return !json->get_ref<const std::string&>().empty();
  return !json->is_null() && !json->empty();
}

const Ordered& json_of(const Value& v, const char* what) {
  const Ordered* json = v.json();
  CHECK(json, "{} of {}", what, kind_of(v));
  return *json;
}
const std::string& text_of(const Value& v, const std::string& what) {
  const Ordered* json = v.json();
  CHECK(json && json->is_string(), "{} of {}, which is no text", what, kind_of(v));
  return json->get_ref<const std::string&>();
}
int64_t whole_of(const Value& v, const char* what) {
  const Ordered& json = json_of(v, what);
  CHECK(json.is_number_integer() || json.is_boolean(), "{} of {}, which is no whole number", what, kind_of(v));
  return json.get<int64_t>();
}

// As json.dumps(ensure_ascii=False) of Python writes it.
void dump(const Ordered& json, int indent, int depth, std::string& out) {
  const auto line = [&](int levels) {
    return indent < 0 ? "" : "\n" + std::string(static_cast<size_t>(indent * levels), ' ');
  };
  const auto all = [&](char open, char close, const auto& each) {
    out += open;
    bool first = true;
    for (auto it = json.begin(); it != json.end(); ++it) {
      out += (first ? "" : indent < 0 ? ", " : ",") + line(depth + 1);
      first = false;
      each(it);
    }
    if (!first) out += line(depth);
    out += close;
  };
  if (json.is_array())
    all('[', ']', [&](const auto& it) { dump(*it, indent, depth + 1, out); });
  else if (json.is_object())
    all('{', '}', [&](const auto& it) {
      out += json_text(Ordered(it.key())) + ": ";
      dump(it.value(), indent, depth + 1, out);
    });
  else
    out += json_text(json);
}

// As Python's str() writes it.
std::string to_text(const Value& v) {
  const Ordered* json = v.json();
  if (!json) {
    CHECK(!v.is_defined(), "{} cannot be written into a text", kind_of(v));
    return "";
  }
  if (json->is_string()) return json->get<std::string>();
  if (json->is_null()) return "None";
  if (json->is_boolean()) return json->get<bool>() ? "True" : "False";
  CHECK(json->is_number(), "{} cannot be written into a text; take a filter, as tojson", kind_of(v));
  return json_text(*json);
}

bool is_equal(const Value& a, const Value& b) {
  const Ordered *x = a.json(), *y = b.json();
  if (!x || !y) return !a.is_defined() && !b.is_defined();
  return *x == *y;
}

std::vector<std::string> characters_of(const std::string& text) {
  std::vector<std::string> all;
  const uint8_t *p = bytes_of(text), *end = p + text.size();
  for (; p < end; p += character_at(p, end).bytes)
    all.emplace_back(reinterpret_cast<const char*>(p), character_at(p, end).bytes);
  return all;
}

int64_t size_of(const Value& v) {
  const Ordered& json = json_of(v, "length");
  if (json.is_string()) return std::ssize(characters_of(json.get<std::string>()));
  CHECK(json.is_structured(), "length of {}", kind_of(v));
  return static_cast<int64_t>(json.size());
}

bool contains(const Value& all, const Value& one) {
  const Ordered& json = json_of(all, "`in`");
  if (json.is_string()) return json.get_ref<const std::string&>().find(text_of(one, "`in`")) != std::string::npos;
  if (json.is_object()) return one.json() && one.json()->is_string() && json.contains(one.json()->get<std::string>());
  CHECK(json.is_array(), "`in` of {}", kind_of(all));
  return std::ranges::any_of(json, [&](const Ordered& each) { return is_equal(Value(each), one); });
}

// What a loop goes over: elements, keys of a mapping, or characters.
std::vector<Ordered> elements_of(const Value& v) {
  if (!v.is_defined()) return {};
  const Ordered& json = json_of(v, "a loop");
  std::vector<Ordered> all;
  if (json.is_object())
    for (const auto& [key, value] : json.items()) all.emplace_back(key);
  else if (json.is_array())
    all.assign(json.begin(), json.end());
  else if (json.is_string())
    for (const std::string& c : characters_of(json.get<std::string>())) all.emplace_back(c);
  else
    FAIL("a loop over {}", kind_of(v));
  return all;
}

Ordered pairs_of(const Ordered& object) {
  Ordered pairs = Ordered::array();
  for (const auto& [key, value] : object.items()) pairs.push_back({key, value});
  return pairs;
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t most) {
  if (from.empty()) return text;
  std::string result;
  size_t at = 0;
  for (size_t found; most != 0 && (found = text.find(from, at)) != std::string::npos; at = found + from.size(), most--)
    result += text.substr(at, found - at) + to;
  return result + text.substr(at);
}

Ordered split(const std::string& text, const Arguments& a) {
  Ordered parts = Ordered::array();
  if (a.by_place.empty() || (a.by_place[0].json() && a.by_place[0].json()->is_null())) {
    std::string_view rest = text;
    while (!(rest = stripped(rest)).empty()) {
      const size_t end = std::min(rest.find_first_of(" \t\r\n\v\f"), rest.size());
      parts.push_back(std::string(rest.substr(0, end)));
      rest.remove_prefix(end);
    }
    return parts;
  }
  const std::string& by = text_of(a.by_place[0], "split");
  CHECK(!by.empty(), "split by an empty text");
  int64_t most = a.by_place.size() > 1 ? whole_of(a.by_place[1], "split") : -1;
  size_t at = 0;
  for (size_t found; most-- != 0 && (found = text.find(by, at)) != std::string::npos; at = found + by.size())
    parts.push_back(text.substr(at, found - at));
  parts.push_back(text.substr(at));
  return parts;
}

// strip("ab") takes off any of these characters, strip() blanks.
std::string strip(const std::string& text, const Arguments& a, bool left, bool right) {
  if (a.by_place.empty()) {
    std::string_view all = stripped(text);
    const size_t before = static_cast<size_t>(all.data() - text.data());
    const size_t begin = left && !all.empty() ? before : left ? text.size() : 0;
    const size_t end = right ? (all.empty() ? begin : before + all.size()) : text.size();
    return text.substr(begin, end - begin);
  }
  const std::string& set = text_of(a.by_place[0], "strip");
  const size_t begin = left ? std::min(text.find_first_not_of(set), text.size()) : 0;
  const size_t last = right ? text.find_last_not_of(set) : text.size() - 1;
  return last == std::string::npos || last + 1 <= begin ? "" : text.substr(begin, last + 1 - begin);
}

std::string in_case(const std::string& text, utf8proc_int32_t (*to)(utf8proc_int32_t)) {
  std::string result;
  for (const std::string& c : characters_of(text)) {
    const char32_t code_point = character_at(bytes_of(c), bytes_of(c) + c.size()).code_point;
    std::array<utf8proc_uint8_t, 4> bytes{};
    if (code_point == stray_byte)
      result += c;
    else
      result.append(
          reinterpret_cast<const char*>(bytes.data()),
          static_cast<size_t>(utf8proc_encode_char(to(static_cast<utf8proc_int32_t>(code_point)), bytes.data())));
  }
  return result;
}
std::string capitalized(const std::string& text) {
  const std::vector<std::string> all = characters_of(text);
  return all.empty() ? "" : in_case(all[0], utf8proc_toupper) + in_case(text.substr(all[0].size()), utf8proc_tolower);
}

bool begins(const std::string& text, const Arguments& a, bool at_end) {
  CHECK(a.by_place.size() == 1, "startswith and endswith take one argument");
  const auto fits = [&](const std::string& part) { return at_end ? text.ends_with(part) : text.starts_with(part); };
  const Ordered& what = json_of(a.by_place[0], "startswith");
  if (what.is_array())
    return std::ranges::any_of(what, [&](const Ordered& part) { return fits(part.get<std::string>()); });
  return fits(text_of(a.by_place[0], "startswith"));
}

using TextMethod = Value (*)(const std::string&, const Arguments&);
const std::map<std::string, TextMethod>& text_methods() {
  static const std::map<std::string, TextMethod> all{
      {"strip", [](const std::string& t, const Arguments& a) { return Value(strip(t, a, true, true)); }},
      {"lstrip", [](const std::string& t, const Arguments& a) { return Value(strip(t, a, true, false)); }},
      {"rstrip", [](const std::string& t, const Arguments& a) { return Value(strip(t, a, false, true)); }},
      {"split", [](const std::string& t, const Arguments& a) { return Value(split(t, a)); }},
      {"upper", [](const std::string& t, const Arguments&) { return Value(in_case(t, utf8proc_toupper)); }},
      {"lower", [](const std::string& t, const Arguments&) { return Value(in_case(t, utf8proc_tolower)); }},
      {"capitalize", [](const std::string& t, const Arguments&) { return Value(capitalized(t)); }},
      {"startswith", [](const std::string& t, const Arguments& a) { return Value(begins(t, a, false)); }},
      {"endswith", [](const std::string& t, const Arguments& a) { return Value(begins(t, a, true)); }},
      {"find",
       [](const std::string& t, const Arguments& a) {
         const size_t at = t.find(text_of(a.by_place.at(0), "find"));
         if (at == std::string::npos) return Value(int64_t{-1});
         return Value(std::ssize(characters_of(t.substr(0, at))));
       }},
      {"replace", [](const std::string& t, const Arguments& a) {
         CHECK(a.by_place.size() >= 2, "replace takes two texts");
         return Value(replaced(t, text_of(a.by_place[0], "replace"), text_of(a.by_place[1], "replace"),
                               a.by_place.size() > 2 ? whole_of(a.by_place[2], "replace") : -1));
       }}};
  return all;
}

Value argument(const Arguments& a, size_t place, const char* name, const Value& otherwise) {
  if (place < a.by_place.size()) return a.by_place[place];
  const auto found = a.by_name.find(name);
  return found == a.by_name.end() ? otherwise : found->second;
}

Value member_of(const Value& object, const std::string& name);

bool test(const std::string& name, const Value& v, const Arguments& a) {
  const Ordered* json = v.json();
  const auto is = [&](bool (Ordered::*kind)() const noexcept) { return json && (json->*kind)(); };
  if (name == "defined") return v.is_defined();
  if (name == "undefined") return !v.is_defined();
  if (name == "none") return is(&Ordered::is_null);
  if (name == "string") return is(&Ordered::is_string);
  if (name == "mapping") return is(&Ordered::is_object);
  if (name == "number") return is(&Ordered::is_number);
  if (name == "integer") return is(&Ordered::is_number_integer);
  if (name == "float") return is(&Ordered::is_number_float);
  if (name == "boolean") return is(&Ordered::is_boolean);
  if (name == "sequence" || name == "iterable") return json && (json->is_structured() || json->is_string());
  if (name == "true" || name == "false") return is(&Ordered::is_boolean) && json->get<bool>() == (name == "true");
  if (name == "callable") return std::holds_alternative<Function>(v);
  if (name == "odd" || name == "even") return (whole_of(v, "odd") % 2 != 0) == (name == "odd");
  CHECK(!a.by_place.empty() && (name == "equalto" || name == "eq" || name == "in" || name == "divisibleby"),
        "the test {} is not known", name);
  if (name == "in") return contains(a.by_place[0], v);
  if (name == "divisibleby") {
    const int64_t by = whole_of(a.by_place[0], "divisibleby");
    CHECK(by != 0, "divisibleby 0");
    return whole_of(v, "divisibleby") % by == 0;
  }
  return is_equal(v, a.by_place[0]);
}

// selectattr, rejectattr, select and reject.
Value selected(const std::string& name, const Value& v, const Arguments& a) {
  const bool by_member = name.ends_with("attr"), keeps = name.starts_with("select");
  const size_t test_at = by_member ? 1 : 0;
  Ordered kept = Ordered::array();
  for (const Ordered& each : elements_of(v)) {
    const Value tested = by_member ? member_of(Value(each), text_of(a.by_place.at(0), "selectattr")) : Value(each);
    const Arguments rest{
        .by_place = {a.by_place.begin() + static_cast<ptrdiff_t>(std::min(a.by_place.size(), test_at + 1)),
                     a.by_place.end()},
        .by_name = {}};
    const bool has =
        a.by_place.size() > test_at ? test(text_of(a.by_place[test_at], "select"), tested, rest) : is_true(tested);
    if (has == keeps) kept.push_back(each);
  }
  return Value(kept);
}

Value filter(const std::string& name, const Value& v, const Arguments& a) {
  if (name == "default" || name == "d") {
    const bool also_false = is_true(argument(a, 1, "boolean", Value(false)));
    return !v.is_defined() || (also_false && !is_true(v)) ? argument(a, 0, "default_value", Value("")) : v;
  }
  if (name == "trim") return Value(strip(to_text(v), a, true, true));
  if (name == "length" || name == "count") return Value(size_of(v));
  if (name == "string") return Value(to_text(v));
  if (name == "safe" || name == "e" || name == "escape") return v;
  if (name == "tojson") {
    const Value indent = argument(a, 0, "indent", Value(Ordered(nullptr)));
    std::string text;
    dump(json_of(v, "tojson"),
         indent.json() && indent.json()->is_number() ? static_cast<int>(whole_of(indent, "indent")) : -1, 0, text);
    return Value(text);
  }
  if (name == "int") {
    const Ordered& json = json_of(v, "int");
    if (json.is_number()) return Value(static_cast<int64_t>(json.get<double>()));
    char* end = nullptr;
    const int64_t value = std::strtoll(to_text(v).c_str(), &end, 10);
    return end && *end == 0 ? Value(value) : argument(a, 0, "default", Value(int64_t{0}));
  }
  if (name == "list") return Value(Ordered(elements_of(v)));
  if (name == "items" || name == "dictsort") {
    const Ordered& json = json_of(v, "items");
    CHECK(json.is_object(), "items of {}", kind_of(v));
    Ordered pairs = pairs_of(json);
    if (name == "dictsort")
      std::sort(pairs.begin(), pairs.end(), [](const Ordered& x, const Ordered& y) { return x[0] < y[0]; });
    return Value(pairs);
  }
  if (name == "first" || name == "last") {
    const std::vector<Ordered> all = elements_of(v);
    return all.empty() ? Value(Undefined{name}) : Value(name == "first" ? all.front() : all.back());
  }
  if (name == "reverse") {
    std::vector<Ordered> all = elements_of(v);
    std::ranges::reverse(all);
    return Value(Ordered(all));
  }
  if (name == "join") {
    const std::string between = to_text(argument(a, 0, "d", Value("")));
    const Value attribute = argument(a, 1, "attribute", Value(Undefined{}));
    std::string text;
    bool first = true;
    for (const Ordered& each : elements_of(v)) {
      text += (first ? "" : between) +
              to_text(attribute.is_defined() ? member_of(Value(each), to_text(attribute)) : Value(each));
      first = false;
    }
    return Value(text);
  }
  if (name == "map") {
    Ordered all = Ordered::array();
    const Value attribute = argument(a, 1000, "attribute", Value(Undefined{}));
    for (const Ordered& each : elements_of(v)) {
      const Value mapped =
          attribute.is_defined()
              ? member_of(Value(each), to_text(attribute))
              : filter(text_of(argument(a, 0, "filter", Value(Undefined{"map"})), "map"), Value(each), {});
      all.push_back(json_of(mapped, "map"));
    }
    return Value(all);
  }
  if (name == "indent") {
    const auto width = static_cast<size_t>(
        std::clamp<int64_t>(whole_of(argument(a, 0, "width", Value(int64_t{4})), "indent"), 0, 100));
    return Value(replaced(to_text(v), "\n", "\n" + std::string(width, ' '), -1));
  }
  if (name == "selectattr" || name == "rejectattr" || name == "select" || name == "reject") return selected(name, v, a);
  const auto method = text_methods().find(name);
  CHECK(method != text_methods().end(), "the filter {} is not known", name);
  return method->second(to_text(v), a);
}

Value method_of(const Ordered& json, const std::string& name) {
  if (json.is_string())
    if (const auto found = text_methods().find(name); found != text_methods().end())
      return Value(Function(
          [text = json.get<std::string>(), call = found->second](const Arguments& a) { return call(text, a); }));
  if (json.is_object()) {
    if (name == "items") return Value(Function([json](const Arguments&) { return Value(pairs_of(json)); }));
    if (name == "keys")
      return Value(Function([json](const Arguments&) { return Value(Ordered(elements_of(Value(json)))); }));
    if (name == "values")
      return Value(Function([json](const Arguments&) {
        Ordered all = Ordered::array();
        for (const auto& [key, value] : json.items()) all.push_back(value);
        return Value(all);
      }));
    if (name == "get")
      return Value(Function([json](const Arguments& a) {
        const std::string key = text_of(argument(a, 0, "key", Value(Undefined{"get"})), "get");
        return json.contains(key) ? Value(json.at(key)) : argument(a, 1, "default", Value(Ordered(nullptr)));
      }));
  }
  return Value(Undefined{name});
}

Value member_of(const Value& object, const std::string& name) {
  if (const auto* members = std::get_if<std::shared_ptr<Members>>(&object)) {
    const auto found = (*members)->find(name);
    return found == (*members)->end() ? Value(Undefined{name}) : found->second;
  }
  const Ordered* json = object.json();
  CHECK(json, "{} of {}", name, kind_of(object));
  if (json->is_object() && json->contains(name)) return Value(json->at(name));
  return method_of(*json, name);
}

Value item_of(const Value& object, const Value& key) {
  if (key.json() && key.json()->is_string()) return member_of(object, key.json()->get<std::string>());
  const std::vector<Ordered> all = elements_of(object);
  int64_t at = whole_of(key, "an index");
  if (at < 0) at += std::ssize(all);
  if (at < 0 || at >= std::ssize(all)) return Value(Undefined{"an element"});
  return Value(all[static_cast<size_t>(at)]);
}

Value slice_of(const Value& object, const Value& from, const Value& to, const Value& by) {
  const std::vector<Ordered> all = elements_of(object);
  const auto given = [](const Value& v) { return v.is_defined() && !(v.json() && v.json()->is_null()); };
  const int64_t size = std::ssize(all), step = given(by) ? whole_of(by, "a slice") : 1;
  CHECK(step != 0, "a slice whose step is 0");
  const auto place = [&](const Value& v, int64_t otherwise) {
    if (!given(v)) return otherwise;
    int64_t at = whole_of(v, "a slice");
    if (at < 0) at += size;
    return std::clamp<int64_t>(at, step > 0 ? 0 : -1, step > 0 ? size : size - 1);
  };
  Ordered part = Ordered::array();
  const int64_t begin = place(from, step > 0 ? 0 : size - 1), end = place(to, step > 0 ? size : -1);
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) part.push_back(all[static_cast<size_t>(i)]);
  if (!object.json()->is_string()) return Value(part);
  std::string text;
  for (const Ordered& c : part) text += c.get<std::string>();
  return Value(text);
}

std::string time_text(const Arguments& a) {
  const std::string form = text_of(argument(a, 0, "format", Value(Undefined{"strftime_now"})), "strftime_now");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[256];
  return std::string(text, std::strftime(text, sizeof text, form.c_str(), &local));
}

enum class Flow { on, end_loop, next_round };

class Interpreter {
 public:
  explicit Interpreter(Members variables) { scopes_.push_back(std::move(variables)); }

  Flow run(const Block& block, std::string& out) {
    for (const Statement& s : block) {
      work(s.line);
      if (const Flow flow = run(s, out); flow != Flow::on) return flow;
    }
    return Flow::on;
  }

 private:
  void work(size_t line) { CHECK(++work_ <= most_work, "line {}: the template does not come to an end", line); }
  void made(size_t bytes) {
    text_ += bytes;
    CHECK(text_ <= most_text, "the template makes more than {} bytes of text", most_text);
  }

  Flow run(const Statement& s, std::string& out) {
    using Kind = Statement::Kind;
    switch (s.kind) {
      case Kind::text:
        made(s.text.size());
        out += s.text;
        return Flow::on;
      case Kind::output: {
        const std::string text = to_text(value(*s.value));
        made(text.size());
        out += text;
        return Flow::on;
      }
      case Kind::condition:
        for (const Statement::Branch& branch : s.branches)
          if (!branch.condition || is_true(value(*branch.condition))) return run(branch.body, out);
        return Flow::on;
      case Kind::loop: return loop(s, out);
      case Kind::set: set(s, value(*s.value)); return Flow::on;
      case Kind::set_block: {
        std::string text;
        run(s.body, text);
        set(s, Value(text));
        return Flow::on;
      }
      case Kind::macro: scopes_.back()[s.text] = macro(s); return Flow::on;
      case Kind::body: return run(s.body, out);
      case Kind::end_loop: return Flow::end_loop;
      case Kind::next_round: return Flow::next_round;
    }
    return Flow::on;
  }

  void set(const Statement& s, Value v) {
    if (s.is_attribute) {
      const auto* members = std::get_if<std::shared_ptr<Members>>(&look_up(s.names[0]));
      CHECK(members, "line {}: {} is no namespace", s.line, s.names[0]);
      (**members)[s.names[1]] = std::move(v);
      return;
    }
    if (s.names.size() == 1) {
      scopes_.back()[s.names[0]] = std::move(v);
      return;
    }
    unpack(s, s.names, v);
  }

  void unpack(const Statement& s, const std::vector<std::string>& names, const Value& v) {
    const std::vector<Ordered> parts = elements_of(v);
    CHECK(parts.size() == names.size(), "line {}: {} names for {} values", s.line, names.size(), parts.size());
    for (size_t i = 0; i < names.size(); i++) scopes_.back()[names[i]] = Value(parts[i]);
  }

  Flow loop(const Statement& s, std::string& out) {
    std::vector<Ordered> all = elements_of(value(*s.value));
    scopes_.emplace_back();
    const auto name = [&](const Ordered& element) {
      if (s.names.size() == 1)
        scopes_.back()[s.names[0]] = Value(element);
      else
        unpack(s, s.names, Value(element));
    };
    if (s.condition)
      std::erase_if(all, [&](const Ordered& element) {
        name(element);
        return !is_true(value(*s.condition));
      });
    const int64_t size = std::ssize(all);
    for (int64_t i = 0; i < size; i++) {
      work(s.line);
      scopes_.back().clear();
      name(all[static_cast<size_t>(i)]);
      const auto element = [&](int64_t at) {
        return at >= 0 && at < size ? Value(all[static_cast<size_t>(at)]) : Value(Undefined{"an element"});
      };
      scopes_.back()["loop"] = Value(std::make_shared<Members>(Members{{"index", Value(i + 1)},
                                                                       {"index0", Value(i)},
                                                                       {"revindex", Value(size - i)},
                                                                       {"revindex0", Value(size - i - 1)},
                                                                       {"first", Value(i == 0)},
                                                                       {"last", Value(i + 1 == size)},
                                                                       {"length", Value(size)},
                                                                       {"previtem", element(i - 1)},
                                                                       {"nextitem", element(i + 1)}}));
      if (run(s.body, out) == Flow::end_loop) break;
    }
    scopes_.pop_back();
    return size == 0 ? run(s.otherwise, out) : Flow::on;
  }

  Value macro(const Statement& s) {
    return Value(Function([this, &s](const Arguments& a) {
      CHECK(++calls_ < most_calls, "line {}: {} calls itself too often", s.line, s.text);
      Members mine;
      for (size_t i = 0; i < s.names.size(); i++) {
        const size_t without = s.names.size() - s.defaults.size();
        const Value given = argument(a, i, s.names[i].c_str(), Value(Undefined{s.names[i]}));
        mine[s.names[i]] = given.is_defined() || i < without ? given : value(*s.defaults[i - without]);
      }
      scopes_.push_back(std::move(mine));
      std::string text;
      run(s.body, text);
      scopes_.pop_back();
      calls_--;
      return Value(text);
    }));
  }

  const Value& look_up(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->find(name); found != scope->end()) return found->second;
    static thread_local Value undefined;
    undefined = Value(Undefined{name});
    return undefined;
  }

  Arguments arguments(const Expression& e) {
    Arguments a;
    for (const Argument& given : e.arguments)
      if (given.name.empty())
        a.by_place.push_back(value(*given.value));
      else
        a.by_name[given.name] = value(*given.value);
    return a;
  }

  Value value(const Expression& e) {
    work(e.line);
    using Kind = Expression::Kind;
    switch (e.kind) {
      case Kind::literal: return Value(e.value);
      case Kind::name: return look_up(e.text);
      case Kind::list: {
        Ordered list = Ordered::array();
        for (const ExpressionPtr& each : e.of) list.push_back(json_of(value(*each), "an element of a list"));
        return Value(list);
      }
      case Kind::mapping: {
        Ordered object = Ordered::object();
        for (size_t i = 0; i < e.of.size(); i += 2)
          object[to_text(value(*e.of[i]))] = json_of(value(*e.of[i + 1]), "a value of a mapping");
        return Value(object);
      }
      case Kind::attribute: return member_of(value(*e.of[0]), e.text);
      case Kind::item: return item_of(value(*e.of[0]), value(*e.of[1]));
      case Kind::slice: {
        const auto part = [&](size_t i) { return e.of[i] ? value(*e.of[i]) : Value(Undefined{"a bound"}); };
        return slice_of(value(*e.of[0]), part(1), part(2), part(3));
      }
      case Kind::call: return call(e);
      case Kind::filter: return filter(e.text, value(*e.of[0]), arguments(e));
      case Kind::test: return Value(test(e.text, value(*e.of[0]), arguments(e)));
      case Kind::unary: {
        const Value v = value(*e.of[0]);
        if (e.text == "not") return Value(!is_true(v));
        const Ordered& number = json_of(v, "a sign");
        CHECK(number.is_number(), "line {}: {} {}", e.line, e.text, kind_of(v));
        if (e.text == "+") return v;
        return number.is_number_integer() ? Value(-number.get<int64_t>()) : Value(Ordered(-number.get<double>()));
      }
      case Kind::binary: return binary(e);
      case Kind::choice: return value(*e.of[is_true(value(*e.of[0])) ? 1 : 2]);
    }
    return Value(Undefined{""});
  }

  Value call(const Expression& e) {
    const Expression& callee = *e.of[0];
    const Value function = value(callee);
    const auto* f = std::get_if<Function>(&function);
    CHECK(f, "line {}: {} is called, and is no function that is known", e.line,
          callee.text.empty() ? kind_of(function) : callee.text);
    return (*f)(arguments(e));
  }

  Value binary(const Expression& e) {
    const std::string& sign = e.text;
    const Value a = value(*e.of[0]);
    if (sign == "and") return is_true(a) ? value(*e.of[1]) : a;
    if (sign == "or") return is_true(a) ? a : value(*e.of[1]);
    const Value b = value(*e.of[1]);
    if (sign == "==") return Value(is_equal(a, b));
    if (sign == "!=") return Value(!is_equal(a, b));
    if (sign == "in") return Value(contains(b, a));
    if (sign == "~") return text(to_text(a) + to_text(b));
    const Ordered *x = a.json(), *y = b.json();
    if (sign == "+" && x && y && x->is_string() && y->is_string())
      return text(x->get_ref<const std::string&>() + y->get_ref<const std::string&>());
    if (sign == "+" && x && y && x->is_array() && y->is_array()) {
      Ordered both = *x;
      both.insert(both.end(), y->begin(), y->end());
      CHECK(both.size() <= static_cast<size_t>(longest_range), "line {}: a list of {}", e.line, both.size());
      return Value(both);
    }
    if (x && y && x->is_string() && y->is_string() && std::string_view("<>").find(sign[0]) != std::string_view::npos) {
      const int order = x->get_ref<const std::string&>().compare(y->get_ref<const std::string&>());
      return Value(sign == "<" ? order < 0 : sign == ">" ? order > 0 : sign == "<=" ? order <= 0 : order >= 0);
    }
    const auto is_number = [](const Ordered* v) { return v && (v->is_number() || v->is_boolean()); };
    CHECK(is_number(x) && is_number(y), "line {}: {} {} {}", e.line, kind_of(a), sign, kind_of(b));
    const double p = x->get<double>(), q = y->get<double>();
    if (sign == "<") return Value(p < q);
    if (sign == ">") return Value(p > q);
    if (sign == "<=") return Value(p <= q);
    if (sign == ">=") return Value(p >= q);
    const bool whole = !x->is_number_float() && !y->is_number_float();
    CHECK(q != 0 || (sign != "/" && sign != "//" && sign != "%"), "line {}: a division by 0", e.line);
    const double result = sign == "+"    ? p + q
                          : sign == "-"  ? p - q
                          : sign == "*"  ? p * q
                          : sign == "/"  ? p / q
                          : sign == "//" ? std::floor(p / q)
                          : sign == "%"  ? p - q * std::floor(p / q)
                                         : std::pow(p, q);
    if (whole && sign != "/" && std::abs(result) < 9e15) return Value(static_cast<int64_t>(result));
    return Value(Ordered(result));
  }

  Value text(std::string made_now) {
    made(made_now.size());
    return Value(std::move(made_now));
  }

  std::vector<Members> scopes_;
  int64_t work_ = 0;
  size_t text_ = 0;
  int calls_ = 0;
};

Members globals() {
  return {
      {"raise_exception", Value(Function([](const Arguments& a) -> Value {
         FAIL("{}", to_text(argument(a, 0, "message", Value("the template refuses"))));
       }))},
      {"strftime_now", Value(Function([](const Arguments& a) { return Value(time_text(a)); }))},
      {"namespace", Value(Function([](const Arguments& a) { return Value(std::make_shared<Members>(a.by_name)); }))},
      {"dict", Value(Function([](const Arguments& a) {
         Ordered object = Ordered::object();
         for (const auto& [key, value] : a.by_name) object[key] = json_of(value, "dict");
         return Value(object);
       }))},
      {"range", Value(Function([](const Arguments& a) {
         const bool one = a.by_place.size() == 1;
         const int64_t begin = one ? 0 : whole_of(argument(a, 0, "", Value(int64_t{0})), "range");
         const int64_t end = whole_of(argument(a, one ? 0 : 1, "", Value(int64_t{0})), "range");
         const int64_t by = whole_of(argument(a, 2, "", Value(int64_t{1})), "range");
         CHECK(by != 0 && (end - begin) / by <= longest_range, "a range from {} to {} by {}", begin, end, by);
         Ordered all = Ordered::array();
         for (int64_t i = begin; by > 0 ? i < end : i > end; i += by) all.push_back(i);
         return Value(all);
       }))}};
}

}  // namespace
}  // namespace jinja

struct JinjaTemplate::Program {
  jinja::Block block;
};

JinjaTemplate::JinjaTemplate(std::string text) : program_(new Program{jinja::parse(text)}) {}
JinjaTemplate::~JinjaTemplate() = default;
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;

std::string JinjaTemplate::render(const nlohmann::ordered_json& variables) const {
  jinja::Members all = jinja::globals();
  for (const auto& [name, value] : variables.items()) all[name] = jinja::Value(value);
  std::string out;
  jinja::Interpreter(std::move(all)).run(program_->block, out);
  return out;
}

std::string jinja_literal(const std::string& text) {
  std::string literal = "'";
  for (const char c : text) {
    if (c == '\n')
      literal += "\\n";
    else if (c == '\r')
      literal += "\\r";
    else if (c == '\t')
      literal += "\\t";
    else if (c == '\'' || c == '\\')
      literal += {'\\', c};
    else
      literal += c;
  }
  return literal + "'";
}

}  // namespace megalith
