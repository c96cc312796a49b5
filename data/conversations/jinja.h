// A small Jinja: renders the chat templates of Hugging Face's tokenizers, and supports the part of the language that
// they use. Source: the template documentation of Jinja 3.1, and the environment in which `transformers` renders
// (trim_blocks, lstrip_blocks, break and continue, raise_exception, strftime_now, tojson without escapes).
//
// It has texts, numbers, lists and mappings; if, for with its loop object, set, macro, and generation, whose body is
// rendered unchanged; the operators, and the filters, tests and methods that jinja_builtins.cpp lists. Unsupported
// parts are an Error that names them. A template comes from a stranger, so work, depth and output are bounded;
// exceeding a bound is an Error too.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace megalith {

class JinjaTemplate {
 public:
  // Error: the text is not a template, with the line.
  explicit JinjaTemplate(std::string text);
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;

  // `variables`: an object. Errors: raise_exception() in the template, with its text as the message; an operation that
  // a value does not have; a bound.
  std::string render(const nlohmann::ordered_json& variables) const;

 private:
  struct Program;
  std::unique_ptr<const Program> program_;
};

// Returns a text as a literal of Jinja.
std::string jinja_literal(const std::string& text);

}  // namespace megalith
