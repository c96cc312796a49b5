#include "data/corpus/conversation_lines.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "data/tokenizers/json_fields.h"

namespace megalith {

namespace {

using Element = simdjson::dom::element;
constexpr const char* supported =
    "megalith trains on texts of system, user and assistant, without tools, reasoning or contents in parts";

// `transformers` renders these fields of a line into the text. Megalith does not support them.
constexpr std::array refused_of_line{"tools",  "functions", "documents", "chat_template", "chat_template_kwargs",
                                     "images", "videos",    "audio",     "audios"};

std::string role_of(std::string_view role) {
  if (role == "human") return "user";
  if (role == "gpt" || role == "chatgpt" || role == "bing" || role == "bard" || role == "model") return "assistant";
  return std::string(role);
}

class Line {
 public:
  Line(const Element& line, const ConversationFields& fields, std::string& bad)
      : line_(line), fields_(fields), bad_(bad) {}

  std::vector<ChatMessage> messages() {
    for (const char* field : refused_of_line)
      if (const auto value = member_of(line_, field); value && !says_nothing(*value)) {
        bad_ = fmt::format("an object with \"{}\", and {}", field, supported);
        return {};
      }
    if (fields_.are_pairs())
      pair(fields_.prompt, fields_.completion);
    else if (const auto list = member_of(line_, fields_.messages))
      turns(fields_.messages, *list, "role", "content");
    else if (const auto shared = member_of(line_, "conversations"))
      turns("conversations", *shared, "from", "value");
    else if (member_of(line_, "instruction") && member_of(line_, "output"))
      pair("instruction", "output");
    else
      bad_ = fmt::format(
          "an object without \"{}\"; name the field of the messages with --field, or those of a prompt and its "
          "completion with --prompt-field and --completion-field",
          fields_.messages);
    if (!bad_.empty()) return {};
    return std::move(messages_);
  }

 private:
  // Returns the text of a field, or "" if it is absent.
  std::string text(const std::string& field) {
    const auto value = member_of(line_, field);
    if (!bad_.empty() || !value || value->is_null()) return "";
    return std::string(text_in(*value, fmt::format("an object whose \"{}\"", field), bad_));
  }

  void add(std::string role, std::string content) {
    if (bad_.empty()) messages_.push_back({std::move(role), std::move(content)});
  }

  void system() {
    if (const std::string content = text("system"); !content.empty()) add("system", content);
  }

  void pair(const std::string& prompt, const std::string& completion) {
    for (const auto& [field, option] : {std::pair(prompt, "--prompt-field"), {completion, "--completion-field"}})
      if (!member_of(line_, field)) {
        bad_ = fmt::format("an object without \"{}\"; name its field with {}", field, option);
        return;
      }
    const bool alpaca = prompt == "instruction";
    if (alpaca) {
      system();
      history();
    }
    const auto exact = [&](const std::string& field) {
      return std::string(text_in(*member_of(line_, field), fmt::format("an object whose \"{}\"", field), bad_));
    };
    std::string question = exact(prompt);
    if (const std::string input = alpaca ? text("input") : ""; !input.empty()) question += "\n" + input;
    add("user", question);
    if (bad_.empty()) add("assistant", exact(completion));
  }

  void history() {
    const auto value = member_of(line_, "history");
    if (!value || says_nothing(*value)) return;
    simdjson::dom::array turns;
    if (value->get(turns)) {
      bad_ = fmt::format("an object whose \"history\" is not a list but {}", kind_of(*value));
      return;
    }
    for (const Element& turn : turns) {
      simdjson::dom::array texts;
      if (turn.get(texts) || texts.size() != 2) {
        bad_ = fmt::format("an object whose \"history\" has {} instead of a question with its answer", kind_of(turn));
        return;
      }
      add("user", std::string(text_in(texts.at(0).value(), "an object whose \"history\" has a question that", bad_)));
      add("assistant",
          std::string(text_in(texts.at(1).value(), "an object whose \"history\" has an answer that", bad_)));
    }
  }

  void turns(const std::string& field, const Element& list, const char* role_key, const char* content_key) {
    simdjson::dom::array all;
    if (list.get(all)) {
      bad_ = fmt::format("an object whose \"{}\" is not a list but {}; a line is {}", field, kind_of(list),
                         form_of(fields_));
      return;
    }
    if (role_key == std::string_view("from")) system();
    size_t number = 0;
    for (const Element& message : all) {
      const std::string which = fmt::format("an object whose message {} of {}", ++number, all.size());
      if (!message.is_object())
        bad_ = fmt::format("{} is {}; a line is {}", which, kind_of(message), form_of(fields_));
      else
        turn(message, which, role_key, content_key);
      if (!bad_.empty()) return;
    }
  }

  void turn(const Element& message, const std::string& which, const char* role_key, const char* content_key) {
    for (const auto& [key, value] : simdjson::dom::object(message)) {
      if (key == role_key || key == content_key || key == "weight" || key == "train" || key == "name" || key == "id" ||
          says_nothing(value))
        continue;
      bad_ = fmt::format("{} has \"{}\", and {}", which, key, supported);
      return;
    }
    const auto member = [&](const char* key) {
      const auto value = member_of(message, key);
      if (bad_.empty() && !value) bad_ = fmt::format("{} has no \"{}\"; a line is {}", which, key, form_of(fields_));
      return value;
    };
    const auto role = member(role_key);
    const auto content = member(content_key);
    if (!bad_.empty()) return;
    if (content->is_array()) {
      bad_ = fmt::format("{} has a \"{}\" in parts, {}, and {}", which, content_key, kind_of(*content), supported);
      return;
    }
    ChatMessage read;
    read.role = role_of(text_in(*role, fmt::format("{} has a \"{}\" that", which, role_key), bad_));
    if (bad_.empty() && read.role != "system" && read.role != "user" && read.role != "assistant")
      bad_ = fmt::format("{} has the role \"{}\", and {}", which, read.role, supported);
    if (bad_.empty()) read.content = text_in(*content, fmt::format("{} has a \"{}\" that", which, content_key), bad_);
    read.counts = counts(message, which, read.role);
    if (bad_.empty()) messages_.push_back(std::move(read));
  }

  bool counts(const Element& message, const std::string& which, const std::string& role) {
    bool counts = true;
    for (const char* key : {"weight", "train"}) {
      const auto value = member_of(message, key);
      if (!bad_.empty() || !value || value->is_null()) continue;
      const double said =
          value->is_bool() ? (value->get<bool>().value() ? 1.0 : 0.0) : value->get<double>().value_unsafe();
      if ((!value->is_bool() && !value->is_number()) || (said != 0 && said != 1) || (said == 1 && role != "assistant"))
        bad_ = fmt::format(
            "{}, with the role {}, has a \"{}\" of {}; an assistant's message may have 0 or 1, or false or true, and "
            "others 0",
            which, role, key, value->is_number() ? fmt::format("{}", said) : kind_of(*value));
      counts = counts && said != 0;
    }
    return counts;
  }

  const Element& line_;
  const ConversationFields& fields_;
  std::string& bad_;
  std::vector<ChatMessage> messages_;
};

}  // namespace

std::string form_of(const ConversationFields& fields) {
  return fields.are_pairs()
             ? fmt::format("{{\"{}\": \"...\", \"{}\": \"...\"}}", fields.prompt, fields.completion)
             : fmt::format("{{\"{}\": [{{\"role\": \"user\", \"content\": \"...\"}}, ...]}}", fields.messages);
}

std::vector<ChatMessage> messages_in(const Element& line, const ConversationFields& fields, std::string& bad) {
  return Line(line, fields, bad).messages();
}

}  // namespace megalith
