#include "data/conversations/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/tokenizers/characters.h"
#include "kernels/system/check.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

std::vector<ChatTemplate> make_templates() {
  using Assistant = ChatTemplate::Assistant;
  using System = ChatTemplate::System;
  using User = ChatTemplate::User;
  return {{.name = "chatml",
           .begin = "",
           .system = System{"<|im_start|>system\n", "<|im_end|>\n"},
           .user = User{"<|im_start|>user\n", "<|im_end|>\n"},
           .assistant = Assistant{"<|im_start|>assistant\n", "", "<|im_end|>", "\n"}},
          {.name = "llama3",
           .begin = "<|begin_of_text|>",
           .system = System{"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
           .user = User{"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
           .assistant = Assistant{"<|start_header_id|>assistant<|end_header_id|>\n\n", "", "<|eot_id|>", ""},
           .trim = true},
          {.name = "mistral",
           .begin = "<s>",
           .system = System{"", "\n\n", true, true},
           .user = User{"[INST] ", " [/INST]"},
           .assistant = Assistant{"", " ", "</s>", ""}},
          {.name = "zephyr",
           .begin = "",
           .system = System{"<|system|>\n", "</s>\n"},
           .user = User{"<|user|>\n", "</s>\n"},
           .assistant = Assistant{"<|assistant|>\n", "", "</s>", "\n"}},
          {.name = "plain",
           .begin = "",
           .system = System{"", "\n\n", false, true},
           .user = User{"### Instruction:\n", "\n\n### Response:\n"},
           .assistant = Assistant{"", "", "<|endoftext|>", "\n\n"}}};
}

std::string names_of_templates() {
  std::string names;
  for (const ChatTemplate& chat : chat_templates()) names += (names.empty() ? "" : ", ") + chat.name;
  return names;
}

// Reads an object of a template file, all of whose keys must be known.
class Section {
 public:
  Section(const Json& object, std::string name, const std::string& path)
      : object_(object), name_(std::move(name)), path_(path) {
    CHECK(object.is_object(), "{}: {} is {}; write an object such as {{\"before\": \"\", \"after\": \"\"}}", path_,
          name_, json_text(object));
  }

  std::string text(const char* key) {
    const Json* value = member(key);
    CHECK(!value || value->is_string(), "{}: {} of {} is {}; write a text", path_, key, name_, json_text(*value));
    return value ? value->get<std::string>() : "";
  }
  bool flag(const char* key) {
    const Json* value = member(key);
    CHECK(!value || value->is_boolean(), "{}: {} of {} is {}; write true or false", path_, key, name_,
          json_text(*value));
    return value && value->get<bool>();
  }
  const Json* member(const char* key) {
    known_.emplace_back(key);
    return object_.contains(key) ? &object_.at(key) : nullptr;
  }
  void check_no_other() const {
    for (const auto& [key, value] : object_.items())
      CHECK(std::ranges::find(known_, key) != known_.end(), "{}: {} has the unknown key \"{}\"; known are {}", path_,
            name_, key, fmt::join(known_, ", "));
  }

 private:
  const Json& object_;
  std::string name_;
  const std::string& path_;
  std::vector<std::string> known_;
};

ChatTemplate template_from(const Json& file, const std::string& path) {
  Section all(file, "the template", path);
  ChatTemplate chat;
  chat.name = path;
  chat.begin = all.text("begin");
  chat.trim = all.flag("trim");
  if (const Json* json = all.member("system")) {
    Section part(*json, "\"system\"", path);
    chat.system = {part.text("before"), part.text("after"), part.flag("in_user"), part.flag("skip_empty"), {}};
    if (part.member("default")) chat.system->otherwise = part.text("default");
    part.check_no_other();
  }
  const Json *user = all.member("user"), *assistant = all.member("assistant");
  all.check_no_other();
  CHECK(user && assistant, "{} has no \"{}\"; a template has the texts around the user's and the assistant's messages",
        path, user ? "assistant" : "user");
  Section of_user(*user, "\"user\"", path), of_assistant(*assistant, "\"assistant\"", path);
  chat.user = {of_user.text("before"), of_user.text("after")};
  chat.assistant = {of_assistant.text("before"), of_assistant.text("lead"), of_assistant.text("end"),
                    of_assistant.text("after")};
  of_user.check_no_other();
  of_assistant.check_no_other();
  CHECK(
      !chat.assistant.end.empty(),
      "{}: \"assistant\" has no \"end\", so that no answer would end; write the text that ends one, such as <|im_end|>",
      path);
  return chat;
}

// Writes messages in order.
class Renderer {
 public:
  explicit Renderer(const ChatTemplate& chat) : chat_(chat) { out_.text = chat.begin; }

  void add(const ChatMessage& message) {
    const std::string_view content = chat_.trim ? stripped(message.content) : std::string_view(message.content);
    if (message.role == "system") return system(content);
    if (message.role == "user") {
      out_.text += chat_.user.before;
      if (waiting_) write_system(*waiting_);
      waiting_.reset();
      write(content);
      out_.text += chat_.user.after;
      return;
    }
    out_.text += chat_.assistant.before;
    const size_t begin = out_.text.size();
    out_.text += chat_.assistant.lead;
    write(content);
    out_.text += chat_.assistant.end;
    if (message.counts) out_.counts.push_back({begin, out_.text.size()});
    out_.text += chat_.assistant.after;
  }

  RenderedChat take() { return std::move(out_); }

 private:
  void system(std::string_view content) {
    if (content.empty() && chat_.system->skip_empty) return;
    if (chat_.system->in_user)
      waiting_ = content;
    else
      write_system(content);
  }
  void write_system(std::string_view content) {
    out_.text += chat_.system->before;
    write(content);
    out_.text += chat_.system->after;
  }
  void write(std::string_view content) {
    const size_t begin = out_.text.size();
    out_.text += content;
    out_.contents.push_back({begin, out_.text.size()});
  }

  const ChatTemplate& chat_;
  RenderedChat out_;
  std::optional<std::string_view> waiting_;  // a system message that belongs inside the next user message
};

RenderedChat render(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  const std::string why = why_no_conversation(chat, messages);
  CHECK(why.empty(), "the messages are not a conversation: {}", why);
  Renderer renderer(chat);
  const bool lacks_system = chat.system && chat.system->otherwise && messages[0].role != "system";
  const ChatMessage otherwise{"system", lacks_system ? *chat.system->otherwise : ""};
  if (lacks_system) renderer.add(otherwise);
  for (const ChatMessage& message : messages) renderer.add(message);
  return renderer.take();
}

RenderedChat render_prompt(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  RenderedChat rendered = render(chat, messages);
  CHECK(messages.back().role == "user", "the last of {} messages has the role {}; a model answers the user's",
        messages.size(), messages.back().role);
  rendered.text += chat.assistant.before;
  return rendered;
}

}  // namespace

const std::vector<ChatTemplate>& chat_templates() {
  static const std::vector<ChatTemplate> all = make_templates();
  return all;
}

ChatTemplate chat_template(const std::string& name_or_file) {
  for (const ChatTemplate& chat : chat_templates())
    if (chat.name == name_or_file) return chat;
  std::error_code absent;
  CHECK(!name_or_file.empty() && std::filesystem::is_regular_file(name_or_file, absent),
        "the chat template {} is neither built in nor a file; built in are {}", name_or_file, names_of_templates());
  try {
    return template_from(parse_json(read_file(name_or_file)), name_or_file);
  } catch (const Json::exception& error) {
    FAIL("the chat template {} is not JSON: {}; data/conversations/chat_template.h describes the format", name_or_file,
         error.what());
  }
}

std::string chat_template_file(const ChatTemplate& chat) {
  nlohmann::ordered_json file{{"begin", chat.begin}};
  if (chat.system)
    file["system"] = {{"before", chat.system->before},
                      {"after", chat.system->after},
                      {"in_user", chat.system->in_user},
                      {"skip_empty", chat.system->skip_empty}};
  if (chat.system && chat.system->otherwise) file["system"]["default"] = *chat.system->otherwise;
  file["user"] = {{"before", chat.user.before}, {"after", chat.user.after}};
  file["assistant"] = {{"before", chat.assistant.before},
                       {"lead", chat.assistant.lead},
                       {"end", chat.assistant.end},
                       {"after", chat.assistant.after}};
  file["trim"] = chat.trim;
  return json_text(file, 2) + "\n";
}

std::string why_no_conversation(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  if (messages.empty()) return "there are no messages; give at least one of the user";
  size_t first = 0;
  if (messages[0].role == "system") {
    if (!chat.system)
      return fmt::format("message 1 has the role system, which the template {} does not have; remove it", chat.name);
    if (messages.size() == 1) return "its only message has the role system; add one of the user after it";
    first = 1;
  }
  for (size_t i = first; i < messages.size(); i++) {
    const char* expected = (i - first) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role == expected) continue;
    return fmt::format(
        "message {} of {} has the role {}, expected {}; a system message may come first, then user and assistant take "
        "turns",
        i + 1, messages.size(), json_text(Json(messages[i].role)), expected);
  }
  return "";
}

RenderedChat render_chat(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  return render(chat, messages);
}

std::string render_chat_prompt(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  return render_prompt(chat, messages).text;
}

EndOfAnswer end_of_answer(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  EndOfAnswer end{.text = chat.assistant.end, .ids = {tokenizer.end_of_text()}};
  for (const SpecialToken& special : tokenizer.special_tokens())
    if (special.text == end.text) {
      end.is_one_token = true;
      if (special.id != tokenizer.end_of_text()) end.ids.insert(end.ids.begin(), special.id);
    }
  if (end.is_one_token) return end;
  std::vector<int32_t> ids;
  encode_with_specials(tokenizer, end.text, ids);
  end.is_one_token = ids.size() == 1;
  if (end.is_one_token && ids[0] != tokenizer.end_of_text()) end.ids.insert(end.ids.begin(), ids[0]);
  return end;
}

ChatEncoder::ChatEncoder(const ChatTemplate& chat, const Tokenizer& tokenizer, SpecialTexts special_texts)
    : chat_(chat),
      tokenizer_(tokenizer),
      special_texts_(special_texts),
      special_(tokenizer),
      encoder_(special_.encoder(tokenizer)),
      of_text_(tokenizer.encoder()) {}
ChatEncoder::~ChatEncoder() = default;

void ChatEncoder::check_specials(std::span<const ChatMessage> messages) const {
  for (size_t i = 0; i < messages.size(); i++) {
    const std::string why = why_refused(special_, messages[i].content);
    CHECK(why.empty(), "message {} of {} has {}", i + 1, messages.size(), why);
  }
}

// Encodes the text, and notes which tokens its parts become.
void ChatEncoder::encode(const RenderedChat& chat, std::vector<int32_t>& ids) {
  const std::string_view text = chat.text;
  places_.clear();
  if (special_texts_ != SpecialTexts::text) return encoder_->encode_places(text, ids, places_);
  const auto is_of_message = [&](size_t begin, size_t end) {
    return std::ranges::any_of(chat.contents, [&](const TextRange& s) { return s.begin < end && begin < s.end; });
  };
  const auto encode_text = [&](size_t begin, size_t end) {
    const size_t first = places_.size();
    if (begin == 0)
      of_text_->encode_places(text.substr(begin, end - begin), ids, places_);
    else
      of_text_->encode_places_inside(text.substr(begin, end - begin), ids, places_);
    for (size_t i = first; i < places_.size(); i++) places_[i] = {begin + places_[i].begin, begin + places_[i].end};
  };
  size_t done = 0;
  for (size_t from = 0; from < text.size();) {
    const SpecialText::Match match = special_.first_in(text.substr(from));
    if (match.size == 0) break;
    const size_t begin = from + match.begin, end = begin + match.size;
    from = is_of_message(begin, end) ? begin + 1 : end;
    if (from != end) continue;
    encode_text(done, begin);
    ids.push_back(match.id);
    places_.push_back({begin, end});
    done = end;
  }
  encode_text(done, text.size());
}

int64_t ChatEncoder::encode(std::span<const ChatMessage> messages, TrainOn train_on, std::vector<int32_t>& ids,
                            std::vector<uint8_t>& counts) {
  if (special_texts_ == SpecialTexts::refuse) check_specials(messages);
  const RenderedChat chat = render(chat_, messages);
  const size_t first = counts.size();
  encode(chat, ids);
  size_t stretch = 0;
  for (const TextRange& place : places_) {
    while (stretch < chat.counts.size() && chat.counts[stretch].end <= place.begin) stretch++;
    const bool in_answer = stretch < chat.counts.size() && chat.counts[stretch].begin < place.end;
    counts.push_back(in_answer || train_on == TrainOn::all ? 1 : 0);
  }
  if (counts.size() > first) counts[first] = 0;
  return std::ssize(chat.text);
}

void ChatEncoder::encode_prompt(std::span<const ChatMessage> messages, std::vector<int32_t>& ids) {
  if (special_texts_ == SpecialTexts::refuse) check_specials(messages);
  encode(render_prompt(chat_, messages), ids);
}

}  // namespace megalith
