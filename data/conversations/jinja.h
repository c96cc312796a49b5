// A small Jinja: renders the chat templates of Hugging Face's tokenizers, in the part of the language that these use.
// Source: the template documentation of Jinja 3.1, and the environment in which `transformers` renders (trim_blocks,
// lstrip_blocks, break and continue, raise_exception, strftime_now, tojson without escapes).
//
// It has texts, numbers, lists and mappings; if, for with its loop object, set, macro, and generation, whose body is
// rendered as it stands; the operators, and the filters, tests and methods that jinja_builtins.cpp lists. What
// it does not know is an Error that names it. A template is somebody else's, so work, depth and output are bounded:
// beyond them it is an Error too.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace megalith {

class JinjaTemplate {
 public:
  // Error: what is not a template, with its line.
  explicit JinjaTemplate(std::string text);
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;

  // `variables`: an object. Errors: raise_exception() in the template, whose text is the message; an operation on
  // values that do not have it; a bound.
  std::string render(const nlohmann::ordered_json& variables) const;

 private:
  struct Program;
  std::unique_ptr<const Program> program_;
};

// Returns a text as a literal of Jinja.
std::string jinja_literal(const std::string& text);

}  // namespace megalith
