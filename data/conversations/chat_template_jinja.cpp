#include "data/conversations/chat_template_jinja.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/conversations/jinja.h"
#include "data/tokenizers/quoted.h"
#include "data/tokenizers/special_tokens.h"
#include "kernels/system/check.h"
#include "kernels/system/files.h"

namespace megalith {

namespace {

using Ordered = nlohmann::ordered_json;
using Messages = std::vector<ChatMessage>;

// A template in Jinja, and the tokens that it may write.
class Foreign {
 public:
  Foreign(const std::string& jinja, const TokenRoles& roles) : template_(jinja), variables_(Ordered::object()) {
    for (const auto& [role, text] : roles) variables_[role] = text;
    variables_["tools"] = variables_["documents"] = nullptr;
  }

  std::string render(const Messages& messages, bool prompt) const {
    Ordered variables = variables_;
    variables["messages"] = Ordered::array();
    for (const ChatMessage& m : messages) variables["messages"].push_back({{"role", m.role}, {"content", m.content}});
    variables["add_generation_prompt"] = prompt;
    return template_.render(variables);
  }

 private:
  JinjaTemplate template_;
  Ordered variables_;
};

// Words that no template contains.
const std::string said_by_system = "zqSystemzq", asked_first = "zqQuestionzq", answered = "zqAnswerzq",
                  asked_again = "zqMorezq";

// Cuts a text at these words, in their order. Returns nullopt if one is missing.
std::optional<std::vector<std::string>> cut_at(const std::string& text, const std::vector<std::string>& words) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (const std::string& word : words) {
    const size_t found = text.find(word, at);
    if (found == std::string::npos) return {};
    parts.push_back(text.substr(at, found - at));
    at = found + word.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::string without_end(const std::string& text, const std::string& end) {
  return text.substr(0, text.size() - end.size());
}

// Test contents of messages: surrounding blanks, several lines, other scripts, Jinja's signs, a thought, an empty
// string.
const std::vector<std::string>& contents() {
  static const std::vector<std::string> all{"Hello there",
                                            "  blanks around \n",
                                            "two\nlines\n\n",
                                            "größer 日本語",
                                            "{{ x }} {% if %} '\"\\",
                                            "<think>\na\n</think>\n\nb",
                                            ""};
  return all;
}

std::vector<Messages> conversations(bool with_system, bool prompts) {
  std::vector<Messages> all;
  for (size_t c = 0; c < contents().size(); c++)
    for (const size_t turns : {1, 2, 3}) {
      Messages messages;
      size_t next = c;
      const auto text = [&] { return contents()[next++ % contents().size()]; };
      if (with_system) messages.push_back({"system", text()});
      for (size_t turn = 0; turn < turns; turn++) {
        messages.push_back({"user", text()});
        if (!prompts || turn + 1 < turns) messages.push_back({"assistant", text()});
      }
      all.push_back(std::move(messages));
    }
  return all;
}

// Returns the first difference between the two templates over such conversations, or "".
std::string difference(const Foreign& foreign, const ChatTemplate& chat, bool prompts) {
  for (const bool with_system : {false, true}) {
    if (with_system && !chat.system) continue;
    for (const Messages& messages : conversations(with_system, prompts)) {
      const std::string ours = prompts ? render_chat_prompt(chat, messages) : render_chat(chat, messages).text;
      std::string theirs;
      try {
        theirs = foreign.render(messages, prompts);
      } catch (const Error& e) {
        theirs = e.what();
      }
      if (ours == theirs) continue;
      const auto at = static_cast<size_t>(std::ranges::mismatch(ours, theirs).in1 - ours.begin());
      const auto shown = [&](const std::string& text) {
        return quoted_bytes(text.substr(std::min(text.size(), at > 20 ? at - 20 : 0), 60));
      };
      return fmt::format("a conversation of {} messages{} has {}, where this form would have {}", messages.size(),
                         with_system ? ", the first of them the system's," : "", shown(theirs), shown(ours));
    }
  }
  return "";
}

// Returns possible system parts of a template, read off a conversation with a system message.
std::vector<ChatTemplate> with_systems(const ChatTemplate& chat, const std::string& head, const std::string& before,
                                       const std::string& after, const TokenRoles& roles) {
  std::vector<ChatTemplate> all;
  const auto add = [&](const std::string& begin, ChatTemplate::System system) {
    for (const bool skip_empty : {false, true}) {
      all.push_back(chat);
      all.back().begin = begin;
      system.skip_empty = skip_empty;
      all.back().system = system;
    }
  };
  if (after.ends_with(chat.user.before)) {
    const std::string behind = without_end(after, chat.user.before);
    if (before.starts_with(head)) add(head, {.before = before.substr(head.size()), .after = behind});
    const auto bos = roles.find("bos_token");
    for (const std::string& begin : {bos == roles.end() ? "" : bos->second, std::string()})
      if (before.starts_with(begin) && head.starts_with(before) && head.ends_with(behind) &&
          head.size() >= before.size() + behind.size())
        add(begin, {.before = before.substr(begin.size()),
                    .after = behind,
                    .otherwise = without_end(head.substr(before.size()), behind)});
  }
  const std::string to_user = head + chat.user.before;
  if (before.starts_with(to_user))
    add(head, {.before = before.substr(to_user.size()), .after = after, .in_user = true});
  return all;
}

// Reads the parts off rendered conversations. Error: why it cannot.
std::vector<ChatTemplate> candidates(const Foreign& foreign, const TokenRoles& roles, const std::string& name) {
  const auto need = [&](const std::vector<Messages>& all, bool prompt, const std::vector<std::string>& words) {
    const auto parts = cut_at(foreign.render(all.front(), prompt), words);
    CHECK(parts, "it does not write every message");
    return *parts;
  };
  const ChatMessage question{"user", asked_first}, answer{"assistant", answered}, more{"user", asked_again};
  const auto first = need({{question}}, true, {asked_first});
  const auto turns = need({{question, answer, more}}, true, {asked_first, answered, asked_again});
  const auto whole = need({{question, answer}}, false, {asked_first, answered});
  const auto open = cut_at(foreign.render({question}, false), {asked_first});
  const std::string &head_and_user = first[0], &to_answer = first[1], &behind = whole[2];
  CHECK(turns[0] == head_and_user && turns[3] == to_answer, "the text around a message depends on later messages");
  CHECK(turns[1].starts_with(to_answer), "an earlier answer is not where a new one begins");
  CHECK(turns[2].starts_with(behind), "the text after an answer depends on the next message");
  ChatTemplate chat;
  chat.name = name;
  chat.user.before = turns[2].substr(behind.size());
  chat.user.after = open && to_answer.starts_with((*open)[1]) ? (*open)[1] : to_answer;
  chat.assistant.before = to_answer.substr(chat.user.after.size());
  chat.assistant.lead = turns[1].substr(to_answer.size());
  const size_t last = behind.find_last_not_of(" \t\n");
  CHECK(last != std::string::npos, "no text ends an answer");
  chat.assistant.end = behind.substr(0, last + 1);
  chat.assistant.after = behind.substr(last + 1);
  CHECK(head_and_user.ends_with(chat.user.before), "the first question begins differently from later ones");
  const std::string head = without_end(head_and_user, chat.user.before);
  std::vector<ChatTemplate> all;
  std::optional<std::vector<std::string>> system;
  try {
    system = cut_at(foreign.render({{"system", said_by_system}, question}, true), {said_by_system, asked_first});
  } catch (const Error&) {  // the template has no system part
  }
  if (system) all = with_systems(chat, head, (*system)[0], (*system)[1], roles);
  if (!system) {
    chat.begin = head;
    all.push_back(chat);
  }
  const size_t so_far = all.size();
  for (size_t i = 0; i < so_far; i++) {
    all.push_back(all[i]);
    all.back().trim = true;
  }
  CHECK(!all.empty(), "its system message is neither before the first question nor inside it");
  return all;
}

}  // namespace

LearnedTemplate learn_chat_template(const std::string& jinja, const TokenRoles& roles, const std::string& name) {
  std::string why;
  try {
    const Foreign foreign(jinja, roles);
    for (ChatTemplate& chat : candidates(foreign, roles, name)) {
      const std::string differs = difference(foreign, chat, true);
      if (why.empty()) why = differs;
      if (!differs.empty()) continue;
      for (const ChatTemplate& known : chat_templates()) {
        ChatTemplate same = chat;
        same.name = known.name;
        if (same == known) chat = known;
      }
      return {chat, difference(foreign, chat, false)};
    }
  } catch (const Error& e) {
    why = e.what();
  }
  FAIL(
      "the form of the chat template of {} is not supported: {}. Choose one with --template: chatml, llama3, mistral, "
      "zephyr, plain, or a file (data/conversations/chat_template.h)",
      name, why);
}

LearnedTemplate named_chat_template(const std::string& name, const TokenUse& use) {
  namespace fs = std::filesystem;
  std::error_code absent;
  if (fs::is_directory(name, absent)) {
    const std::string ours = (fs::path(name) / chat_template_name).string();
    if (fs::is_regular_file(ours, absent)) return {chat_template(ours), ""};
    const TokenUse theirs = special_tokens_in(name).use;
    CHECK(!theirs.jinja.empty(),
          "the folder {} has no chat template, neither {} nor {} nor one in {}; name a folder that has one, a file, or "
          "one of chatml, llama3, mistral, zephyr and plain",
          name, chat_template_name, jinja_file, tokenizer_config_file);
    return learn_chat_template(theirs.jinja, theirs.roles, name);
  }
  if (fs::is_regular_file(name, absent)) {
    const std::string text = read_file(name);
    const size_t first = text.find_first_not_of(" \t\r\n");
    const bool is_object = first != std::string::npos && text[first] == '{' &&
                           text.find('"', first) != std::string::npos &&
                           text.find_first_of("%{#", first + 1) != first + 1;
    if (!is_object) return learn_chat_template(text, use.roles, name);
  }
  return {chat_template(name), ""};
}

std::string to_jinja(const ChatTemplate& chat) {
  const auto text = [](const std::string& t) { return jinja_literal(t); };
  const std::string content = chat.trim ? "['content'] | trim" : "['content']";
  std::string jinja = "{{- " + text(chat.begin) + " }}\n";
  jinja += "{%- set turns = messages %}\n{%- set system = none %}\n";
  jinja += "{%- if messages | length > 0 and messages[0]['role'] == 'system' %}\n";
  if (chat.system) {
    jinja += "{%- set system = messages[0]" + content + " %}\n{%- set turns = messages[1:] %}\n";
    if (chat.system->otherwise) jinja += "{%- else %}\n{%- set system = " + text(*chat.system->otherwise) + " %}\n";
  } else {
    jinja += "{{- raise_exception('This template has no system message.') }}\n";
  }
  jinja += "{%- endif %}\n";
  const std::string has_system = chat.system && chat.system->skip_empty ? "system" : "system is not none";
  const std::string of_system =
      chat.system ? text(chat.system->before) + " ~ system ~ " + text(chat.system->after) : "''";
  if (chat.system && !chat.system->in_user)
    jinja += "{%- if " + has_system + " %}{{- " + of_system + " }}{% endif %}\n";
  jinja += "{%- for message in turns %}\n{%- if message['role'] == 'user' and loop.index0 % 2 == 0 %}\n";
  jinja += "{{- " + text(chat.user.before) + " }}\n";
  if (chat.system && chat.system->in_user)
    jinja += "{%- if loop.first and " + has_system + " %}{{- " + of_system + " }}{% endif %}\n";
  jinja += "{{- message" + content + " }}{{ " + text(chat.user.after) + " }}\n";
  jinja += "{%- elif message['role'] == 'assistant' and loop.index0 % 2 == 1 %}\n";
  jinja += "{{- " + text(chat.assistant.before + chat.assistant.lead) + " }}{{ message" + content + " }}{{ " +
           text(chat.assistant.end + chat.assistant.after) + " }}\n";
  jinja +=
      "{%- else %}\n{{- raise_exception('A system message may come first, then user and assistant take turns.') }}\n";
  jinja += "{%- endif %}\n{%- endfor %}\n";
  jinja += "{%- if add_generation_prompt %}{{- " + text(chat.assistant.before) + " }}{% endif %}\n";
  return jinja;
}

}  // namespace megalith
