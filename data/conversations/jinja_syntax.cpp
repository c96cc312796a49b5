#include "data/conversations/jinja_syntax.h"

#include <algorithm>
#include <array>
#include <functional>

#include "data/conversations/jinja_lexer.h"
#include "kernels/system/check.h"

namespace megalith::jinja {

namespace {

using Json = nlohmann::ordered_json;
constexpr int most_nested = 200;

int64_t whole_number(const Token& token) {
  CHECK(token.text.size() <= 18, "line {}: the number {} has more than 18 digits", token.line, token.text);
  return std::stoll(token.text);
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Block all() {
    Block block = body({});
    CHECK(now().kind == Token::Kind::end, "line {}: {} without its beginning", now().line, ended_by_);
    return block;
  }

 private:
  using Kind = Expression::Kind;

  const Token& now() const { return tokens_[at_]; }
  Token take() { return tokens_[now().kind == Token::Kind::end ? at_ : at_++]; }
  bool is(std::string_view word) const {
    return (now().kind == Token::Kind::name || now().kind == Token::Kind::symbol) && now().text == word;
  }
  bool takes(std::string_view word) { return is(word) && (take(), true); }
  void need(std::string_view word) {
    CHECK(takes(word), "line {}: expected `{}`, found `{}`", now().line, word, now().text);
  }
  std::string name() {
    CHECK(now().kind == Token::Kind::name, "line {}: expected a name, found `{}`", now().line, now().text);
    return take().text;
  }
  void end_block() {
    CHECK(now().kind == Token::Kind::end_block, "line {}: expected %}}, found `{}`", now().line, now().text);
    take();
  }

  // Parses up to a block with one of these words; ended_by_ then holds that block.
  Block body(const std::vector<std::string_view>& ends) {
    CHECK(++depth_ < most_nested, "line {}: blocks are nested too deeply", now().line);
    Block block;
    ended_by_.clear();
    while (now().kind != Token::Kind::end) {
      const Token token = take();
      Statement statement{};
      statement.line = token.line;
      if (token.kind == Token::Kind::text) {
        statement.kind = Statement::Kind::text;
        statement.text = token.text;
      } else if (token.kind == Token::Kind::begin_output) {
        statement.kind = Statement::Kind::output;
        statement.value = expression();
        CHECK(now().kind == Token::Kind::end_output, "line {}: expected }}}}, found `{}`", now().line, now().text);
        take();
      } else {
        const std::string word = name();
        if (std::ranges::find(ends, word) != ends.end()) {
          ended_by_ = word;
          depth_--;
          return block;
        }
        block_of(word, statement);
      }
      block.push_back(std::move(statement));
    }
    CHECK(ends.empty(), "line {}: {} is missing", now().line, ends.back());
    depth_--;
    return block;
  }

  void block_of(const std::string& word, Statement& s) {
    if (word == "if") return condition(s);
    if (word == "for") return loop(s);
    if (word == "set") return set(s);
    if (word == "macro") return macro(s);
    if (word == "generation") {
      s.kind = Statement::Kind::body;
      end_block();
      s.body = body({"endgeneration"});
      return end_block();
    }
    if (word == "break" || word == "continue") {
      s.kind = word == "break" ? Statement::Kind::end_loop : Statement::Kind::next_round;
      return end_block();
    }
    FAIL("line {}: the block {} is not supported", s.line, word);
  }

  void condition(Statement& s) {
    s.kind = Statement::Kind::condition;
    for (bool has_condition = true;;) {
      Statement::Branch branch;
      if (has_condition) branch.condition = expression();
      end_block();
      branch.body = body({"elif", "else", "endif"});
      s.branches.push_back(std::move(branch));
      if (ended_by_ == "endif") return end_block();
      has_condition = ended_by_ == "elif";
    }
  }

  void loop(Statement& s) {
    s.kind = Statement::Kind::loop;
    do s.names.push_back(name());
    while (takes(","));
    need("in");
    s.value = without_choice();
    if (takes("if")) s.condition = expression();
    takes("recursive");
    end_block();
    s.body = body({"else", "endfor"});
    if (ended_by_ == "else") {
      end_block();
      s.otherwise = body({"endfor"});
    }
    end_block();
  }

  void set(Statement& s) {
    s.names.push_back(name());
    if (takes(".")) {
      s.is_attribute = true;
      s.names.push_back(name());
    } else {
      while (takes(",")) s.names.push_back(name());
    }
    if (takes("=")) {
      s.kind = Statement::Kind::set;
      s.value = tuple();
      return end_block();
    }
    s.kind = Statement::Kind::set_block;
    end_block();
    s.body = body({"endset"});
    end_block();
  }

  void macro(Statement& s) {
    s.kind = Statement::Kind::macro;
    s.text = name();
    need("(");
    while (!takes(")")) {
      s.names.push_back(name());
      if (takes("="))
        s.defaults.push_back(expression());
      else
        CHECK(s.defaults.empty(), "line {}: a parameter without a value follows one with a value", s.line);
      if (!is(")")) need(",");
    }
    end_block();
    s.body = body({"endmacro"});
    end_block();
  }

  ExpressionPtr make(Kind kind, std::string text = {}) const {
    auto e = std::make_unique<Expression>();
    e->kind = kind;
    e->text = std::move(text);
    e->line = now().line;
    return e;
  }
  template <class... Operands>
  ExpressionPtr with(Kind kind, std::string text, Operands... operands) const {
    ExpressionPtr e = make(kind, std::move(text));
    (e->of.push_back(std::move(operands)), ...);
    return e;
  }
  ExpressionPtr literal(Json value) const {
    ExpressionPtr e = make(Kind::literal);
    e->value = std::move(value);
    return e;
  }

  ExpressionPtr tuple() {
    ExpressionPtr first = expression();
    if (!is(",")) return first;
    ExpressionPtr list = with(Kind::list, "", std::move(first));
    while (takes(","))
      if (now().kind != Token::Kind::end_block) list->of.push_back(expression());
    return list;
  }

  ExpressionPtr expression() {
    CHECK(++depth_ < most_nested, "line {}: an expression is nested too deeply", now().line);
    ExpressionPtr value = without_choice();
    while (takes("if")) {
      ExpressionPtr condition = without_choice();
      ExpressionPtr otherwise = takes("else") ? expression() : literal("");
      value = with(Kind::choice, "", std::move(condition), std::move(value), std::move(otherwise));
    }
    depth_--;
    return value;
  }

  ExpressionPtr without_choice() {
    ExpressionPtr value = conjunction();
    while (takes("or")) value = with(Kind::binary, "or", std::move(value), conjunction());
    return value;
  }
  ExpressionPtr conjunction() {
    ExpressionPtr value = negation();
    while (takes("and")) value = with(Kind::binary, "and", std::move(value), negation());
    return value;
  }
  ExpressionPtr negation() {
    CHECK(++depth_ < most_nested, "line {}: an expression is nested too deeply", now().line);
    ExpressionPtr value = takes("not") ? with(Kind::unary, "not", negation()) : comparison();
    depth_--;
    return value;
  }
  ExpressionPtr comparison() {
    ExpressionPtr value = sum();
    for (;;) {
      static constexpr std::array<const char*, 7> signs{"==", "!=", "<", ">", "<=", ">=", "in"};
      const auto sign = std::ranges::find_if(signs, [&](const char* s) { return is(s); });
      if (sign != signs.end()) {
        take();
        value = with(Kind::binary, *sign, std::move(value), sum());
      } else if (is("not") && tokens_[at_ + 1].text == "in") {
        take();
        take();
        value = with(Kind::unary, "not", with(Kind::binary, "in", std::move(value), sum()));
      } else {
        return value;
      }
    }
  }
  ExpressionPtr sum() {
    ExpressionPtr value = product();
    while (is("+") || is("-") || is("~")) {
      const std::string sign = take().text;
      value = with(Kind::binary, sign, std::move(value), product());
    }
    return value;
  }
  ExpressionPtr product() {
    ExpressionPtr value = signed_one();
    while (is("*") || is("/") || is("//") || is("%") || is("**")) {
      const std::string sign = take().text;
      value = with(Kind::binary, sign, std::move(value), signed_one());
    }
    return value;
  }
  ExpressionPtr signed_one() {
    if (!is("-") && !is("+")) return postfix();
    CHECK(++depth_ < most_nested, "line {}: an expression is nested too deeply", now().line);
    const std::string sign = take().text;
    ExpressionPtr value = with(Kind::unary, sign, signed_one());
    depth_--;
    return value;
  }

  std::vector<Argument> call_arguments() {
    std::vector<Argument> all;
    need("(");
    while (!takes(")")) {
      Argument argument;
      if (now().kind == Token::Kind::name && tokens_[at_ + 1].text == "=" &&
          tokens_[at_ + 1].kind == Token::Kind::symbol) {
        argument.name = name();
        take();
      }
      argument.value = expression();
      all.push_back(std::move(argument));
      if (!is(")")) need(",");
    }
    return all;
  }

  ExpressionPtr postfix() {
    ExpressionPtr value = primary();
    for (;;) {
      if (takes(".")) {
        value = now().kind == Token::Kind::number
                    ? with(Kind::item, "", std::move(value), literal(whole_number(take())))
                    : with(Kind::attribute, name(), std::move(value));
      } else if (takes("[")) {
        value = subscript(std::move(value));
      } else if (is("(")) {
        ExpressionPtr call = with(Kind::call, "", std::move(value));
        call->arguments = call_arguments();
        value = std::move(call);
      } else if (takes("|")) {
        const std::string filter = name();
        ExpressionPtr call = with(Kind::filter, filter, std::move(value));
        if (is("(")) call->arguments = call_arguments();
        value = std::move(call);
      } else if (takes("is")) {
        const bool negated = takes("not");
        const std::string test = name();
        ExpressionPtr call = with(Kind::test, test, std::move(value));
        if (is("("))
          call->arguments = call_arguments();
        else if (test == "in" || test == "equalto" || test == "eq" || test == "divisibleby")
          call->arguments.push_back({"", primary()});
        value = negated ? with(Kind::unary, "not", std::move(call)) : std::move(call);
      } else {
        return value;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr value) {
    ExpressionPtr part = is(":") ? nullptr : expression();
    if (!is(":")) {
      need("]");
      return with(Kind::item, "", std::move(value), std::move(part));
    }
    ExpressionPtr slice = with(Kind::slice, "", std::move(value), std::move(part));
    while (takes(":")) slice->of.push_back(is(":") || is("]") ? nullptr : expression());
    slice->of.resize(4);
    need("]");
    return slice;
  }

  ExpressionPtr primary() {
    const Token token = take();
    switch (token.kind) {
      case Token::Kind::string: {
        std::string text = token.text;
        while (now().kind == Token::Kind::string) text += take().text;
        return literal(text);
      }
      case Token::Kind::number:
        if (token.text.find('.') != std::string::npos) return literal(std::stod(token.text));
        return literal(whole_number(token));
      case Token::Kind::name:
        if (token.text == "true" || token.text == "True") return literal(true);
        if (token.text == "false" || token.text == "False") return literal(false);
        if (token.text == "none" || token.text == "None") return literal(nullptr);
        return make(Kind::name, token.text);
      case Token::Kind::symbol:
        if (token.text == "(") return in_brackets();
        if (token.text == "[" || token.text == "{") return collection(token.text == "[");
        [[fallthrough]];
      default: FAIL("line {}: expected a value, found `{}`", token.line, token.text);
    }
  }

  ExpressionPtr in_brackets() {
    if (takes(")")) return make(Kind::list);
    ExpressionPtr value = expression();
    if (is(",")) {
      value = with(Kind::list, "", std::move(value));
      while (takes(","))
        if (!is(")")) value->of.push_back(expression());
    }
    need(")");
    return value;
  }

  ExpressionPtr collection(bool is_list) {
    ExpressionPtr all = make(is_list ? Kind::list : Kind::mapping);
    const char* end = is_list ? "]" : "}";
    while (!takes(end)) {
      all->of.push_back(expression());
      if (!is_list) {
        need(":");
        all->of.push_back(expression());
      }
      if (!is(end)) need(",");
    }
    return all;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::string ended_by_;
};

}  // namespace

Block parse(const std::string& text) { return Parser(words_of(text)).all(); }

}  // namespace megalith::jinja
