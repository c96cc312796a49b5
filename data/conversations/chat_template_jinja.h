// Chat templates in Hugging Face's form, which is Jinja: written for an export, and recognised in a folder by what they
// render.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "data/conversations/chat_template.h"

namespace megalith {

using TokenRoles = std::map<std::string, std::string>;  // TokenUse::roles

// Returns the template in Jinja: `transformers` renders with it what render_chat() and render_chat_prompt() do. Other
// conversations are refused in both.
std::string to_jinja(const ChatTemplate& chat);

struct LearnedTemplate {
  ChatTemplate chat;
  // Why it renders prompts as the template in Jinja does, but not whole conversations, which training takes; "": both.
  std::string prompts_alone;
};

// Returns the template that renders as one in Jinja does: its parts are read off conversations that it renders, and
// compared over many others. `name` is what to call it in messages; one that is built in keeps its own name. Error,
// with the first conversation that differs: it has another form than ChatTemplate can say.
LearnedTemplate learn_chat_template(const std::string& jinja, const TokenRoles& roles, const std::string& name);

// Returns the template that a user names: a built-in one; a file of chat_template.h's form or in Jinja; or a folder
// that has one, of prepare, of a run or of Hugging Face, whose own roles hold then. `use` is the tokenizer's. Errors:
// none of these; as of chat_template() and learn_chat_template().
LearnedTemplate named_chat_template(const std::string& name, const TokenUse& use);

}  // namespace megalith
