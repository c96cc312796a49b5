// Chat templates in Hugging Face's form, Jinja: written for an export, and recognised in a folder by the text that they
// render.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "data/conversations/chat_template.h"

namespace megalith {

using TokenRoles = std::map<std::string, std::string>;  // TokenUse::roles

// Returns the template in Jinja. `transformers` renders with it the texts of render_chat() and render_chat_prompt();
// conversations that these refuse, it refuses too.
std::string to_jinja(const ChatTemplate& chat);

struct LearnedTemplate {
  ChatTemplate chat;
  // Why it renders prompts as the template in Jinja does, but not the whole conversations that training takes; "": it
  // renders both.
  std::string prompts_only;
};

// Returns the template that renders as a given one in Jinja does. Its parts are read off conversations that the Jinja
// template renders, and then compared over many others. `name` names it in messages; a built-in template keeps its own
// name. Error, with the first conversation that differs: ChatTemplate cannot express it.
LearnedTemplate learn_chat_template(const std::string& jinja, const TokenRoles& roles, const std::string& name);

// Returns the template that a user names: a built-in one; a file in chat_template.h's form or in Jinja; or a folder
// that has one, of prepare, of a run or a Hugging Face checkpoint, whose own token roles then apply. `use` is the
// tokenizer's. Errors: none of these; those of chat_template() and learn_chat_template().
LearnedTemplate named_chat_template(const std::string& name, const TokenUse& use);

}  // namespace megalith
