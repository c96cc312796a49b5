#include "data/conversations/jinja_value.h"

#include <algorithm>

#include "data/tokenizers/characters.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith::jinja {

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
const std::string& text_of(const Value& v, const char* what) {
  const Ordered* json = v.json();
  CHECK(json && json->is_string(), "{} of {}, which is not a text", what, kind_of(v));
  return json->get_ref<const std::string&>();
}
int64_t whole_of(const Value& v, const char* what) {
  const Ordered& json = json_of(v, what);
  CHECK(json.is_number_integer() || json.is_boolean(), "{} of {}, which is not a whole number", what, kind_of(v));
  return json.is_boolean() ? json.get<bool>() : json.get<int64_t>();
}

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

std::string to_text(const Value& v) {
  const Ordered* json = v.json();
  if (!json) {
    CHECK(!v.is_defined(), "{} cannot be written into a text", kind_of(v));
    return "";
  }
  if (json->is_string()) return json->get<std::string>();
  if (json->is_null()) return "None";
  if (json->is_boolean()) return json->get<bool>() ? "True" : "False";
  CHECK(json->is_number(), "{} cannot be written into a text; use a filter such as tojson", kind_of(v));
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

}  // namespace megalith::jinja
