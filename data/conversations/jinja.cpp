#include "data/conversations/jinja.h"

#include "data/conversations/jinja_builtins.h"
#include "data/conversations/jinja_syntax.h"
#include "data/conversations/jinja_value.h"
#include "kernels/system/check.h"

namespace megalith {

namespace jinja {
namespace {

constexpr int64_t most_work = 2'000'000;  // expressions and statements
constexpr int most_calls = 100;           // nested calls of macros

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
      CHECK(members, "line {}: {} is not a namespace", s.line, s.names[0]);
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
    CHECK(f, "line {}: {} is called, but is not a supported function", e.line,
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
    const auto number = [](const Ordered& v) { return v.is_boolean() ? v.get<bool>() : v.get<double>(); };
    const double p = number(*x), q = number(*y);
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
  try {
    jinja::Interpreter(std::move(all)).run(program_->block, out);
  } catch (const nlohmann::json::exception& e) {
    FAIL("a value of the template has no such operation ({})", e.what());
  } catch (const std::out_of_range&) {
    FAIL("the template leaves out an argument of a function, a filter or a test");
  }
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
