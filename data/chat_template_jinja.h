// Chat templates in Hugging Face's form, which is Jinja: written for an export, and recognised in a folder by what they
// render.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "data/chat_template.h"

namespace megalith {

// Texts of special tokens by what they are for, as files of a tokenizer have them: "bos_token", "eos_token" and the like.
using TokenRoles = std::map<std::string, std::string>;

// Returns the template in Jinja: `transformers` renders with it what render_chat() and render_chat_prompt() do. Other
// conversations are refused in both.
std::string to_jinja(const ChatTemplate& chat);

struct LearnedTemplate {
  ChatTemplate chat;
  // Why it renders prompts as the template in Jinja does, but not whole conversations, which training takes; "": both.
  std::string prompts_alone;
};

// Returns the template that renders as one in Jinja does: its parts are read off conversations that it renders, and
// compared over many others. `name` is what to call it in messages; one that is built in keeps its own name. Error, with
// the first conversation that differs: it has another form than ChatTemplate can say.
LearnedTemplate learn_chat_template(const std::string& jinja, const TokenRoles& roles, const std::string& name);

constexpr const char* jinja_file = "chat_template.jinja";

// Returns the template in Jinja that a folder has for `transformers`: its chat_template.jinja or, without one, the
// "chat_template" of its tokenizer_config.json, of several the one named "default".
std::optional<std::string> jinja_in(const std::string& folder);

}  // namespace megalith
