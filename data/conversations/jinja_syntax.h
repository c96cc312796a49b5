// The syntax tree of a Jinja template, and its parser. Inside data/ only.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace megalith::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Argument {
  std::string name;  // empty: a positional argument
  ExpressionPtr value;
};

struct Expression {
  enum class Kind {
    literal,
    name,
    list,
    mapping,    // keys and values, alternating
    attribute,  // a.text
    item,       // a[b]
    slice,      // a[b:c:d]; absent ones are null
    call,       // a(arguments)
    filter,     // a|text(arguments)
    test,       // a is text(arguments)
    unary,      // text a: not, -, +
    binary,     // a text b
    choice      // b if a else c
  };
  Kind kind;
  std::string text;               // a name, an attribute, an operator, a filter or a test
  nlohmann::ordered_json value;   // a literal
  std::vector<ExpressionPtr> of;  // a, b, c, d
  std::vector<Argument> arguments;
  size_t line = 0;
};

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
  enum class Kind { text, output, condition, loop, set, set_block, macro, body, end_loop, next_round };
  struct Branch {
    ExpressionPtr condition;  // null: else
    Block body;
  };
  Kind kind;
  std::string text;  // the text; the name of a macro
  // The names of a loop, a set or a macro's parameters; of a set with an attribute: object and key.
  std::vector<std::string> names;
  ExpressionPtr value, condition;       // of a loop: the sequence, and the condition on its elements
  bool is_attribute = false;            // set object.key
  std::vector<Branch> branches;         // the branches of a condition
  Block body, otherwise;                // of a loop: its else
  std::vector<ExpressionPtr> defaults;  // defaults of a macro's last parameters
  size_t line = 0;
};

// Error: with the line.
Block parse(const std::string& text);

}  // namespace megalith::jinja
