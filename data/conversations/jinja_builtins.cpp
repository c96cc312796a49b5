#include "data/conversations/jinja_builtins.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "data/tokenizers/characters.h"
#include "kernels/system/check.h"

namespace megalith::jinja {

namespace {

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

// strip("ab") removes any of these characters, strip() blanks.
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

}  // namespace

Value argument(const Arguments& a, size_t place, const char* name, const Value& otherwise) {
  if (place < a.by_place.size()) return a.by_place[place];
  const auto found = a.by_name.find(name);
  return found == a.by_name.end() ? otherwise : found->second;
}

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
        "the test {} is not supported", name);
  if (name == "in") return contains(a.by_place[0], v);
  if (name == "divisibleby") {
    const int64_t by = whole_of(a.by_place[0], "divisibleby");
    CHECK(by != 0, "divisibleby 0");
    return whole_of(v, "divisibleby") % by == 0;
  }
  return is_equal(v, a.by_place[0]);
}

namespace {

// Implements selectattr, rejectattr, select and reject.
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

}  // namespace

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
  CHECK(method != text_methods().end(), "the filter {} is not supported", name);
  return method->second(to_text(v), a);
}

namespace {

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

}  // namespace

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
  json_of(object, "an element");  // throws if it is not JSON
  const std::vector<Ordered> all = elements_of(object);
  int64_t at = whole_of(key, "an index");
  if (at < 0) at += std::ssize(all);
  if (at < 0 || at >= std::ssize(all)) return Value(Undefined{"an element"});
  return Value(all[static_cast<size_t>(at)]);
}

Value slice_of(const Value& object, const Value& from, const Value& to, const Value& by) {
  json_of(object, "a slice");  // throws if it is not JSON
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

namespace {

std::string time_text(const Arguments& a) {
  const std::string form = text_of(argument(a, 0, "format", Value(Undefined{"strftime_now"})), "strftime_now");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[256];
  return std::string(text, std::strftime(text, sizeof text, form.c_str(), &local));
}

}  // namespace

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

}  // namespace megalith::jinja
