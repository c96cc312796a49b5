// A chat template turns a conversation into a text: it gives the strings before and after each message, and the
// characters that a model is trained on. It is plain data; nothing is interpreted.
//
// A message is written as its role's `before`, its content, and its role's `after`. An answer's `lead`, content and
// `end` count in the loss; its `before` and `after` do not:
//
//   chatml    <|im_start|>ROLE\n CONTENT <|im_end|>\n               OpenAI's ChatML, as in Qwen's models
//   llama3    <|start_header_id|>ROLE<|end_header_id|>\n\n CONTENT <|eot_id|>, after <|begin_of_text|>; Llama 3's
//   mistral   [INST] CONTENT [/INST], answers " CONTENT</s>", after <s>; Mistral 7B Instruct's
//   zephyr    <|ROLE|>\n CONTENT </s>\n                               Zephyr's
//   plain     ### Instruction:\n CONTENT \n\n### Response:\n, answers CONTENT<|endoftext|>\n\n; like Stanford Alpaca's
//
// A user's own template file is JSON; absent strings are empty, absent flags false:
//
//   {"begin": TEXT,                                    before the first message
//    "system":    {"before", "after": TEXT,
//                  "default": TEXT,                    used if a conversation has no system message
//                  "in_user": true,                    written inside the next user message, after its `before`
//                  "skip_empty": true},                an empty one is left out; no "system": none is allowed
//    "user":      {"before", "after": TEXT},
//    "assistant": {"before", "lead", "end", "after": TEXT},
//    "trim": true}                                     removes the blanks around contents
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/special_text.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

struct ChatMessage {
  std::string role;  // system, user or assistant
  std::string content;
  bool counts = true;  // an assistant's message is trained on
};

struct ChatTemplate {
  struct System {
    std::string before, after;
    bool in_user = false, skip_empty = false;
    std::optional<std::string> otherwise{};  // "default"; absent: nothing is written
    bool operator==(const System&) const = default;
  };
  struct User {
    std::string before, after;
    bool operator==(const User&) const = default;
  };
  struct Assistant {
    std::string before, lead, end, after;
    bool operator==(const Assistant&) const = default;
  };

  std::string name;   // or the file
  std::string begin;  // before the first message
  std::optional<System> system;
  User user;
  Assistant assistant;
  bool trim = false;

  bool operator==(const ChatTemplate&) const = default;
};

// The built-in templates, in the order above.
const std::vector<ChatTemplate>& chat_templates();

// Returns the built-in template of this name or else the template in the file of this path. Errors: neither exists; a
// file that is not of the form above, by key.
ChatTemplate chat_template(const std::string& name_or_file);

// Returns a template as the text of a file; chat_template() reads it back.
std::string chat_template_file(const ChatTemplate& chat);
// The file's name in the folders of prepare and of runs.
inline constexpr const char* chat_template_name = "chat_template.json";

// Which tokens of an example are trained on.
enum class TrainOn {
  answers,  // tokens with a character in an answer's lead, content or end
  all       // all tokens that follow another
};

struct RenderedChat {
  std::string text;
  std::vector<TextRange> counts;    // the answers
  std::vector<TextRange> contents;  // the messages' contents, in text order
};

// Returns why the messages are not a conversation for this template, with the remedy, or "" if they are: a system
// message may come first, then the user and the assistant take turns.
std::string why_no_conversation(const ChatTemplate& chat, std::span<const ChatMessage> messages);

// Renders a conversation as it is trained on. Error: why_no_conversation().
RenderedChat render_chat(const ChatTemplate& chat, std::span<const ChatMessage> messages);

// Renders a conversation whose last message is the user's, followed by the text that precedes an answer, so that a
// model continues with the answer. Errors: why_no_conversation(); the last message is not the user's.
std::string render_chat_prompt(const ChatTemplate& chat, std::span<const ChatMessage> messages);

// An answer ends with the template's own end, or with the end of a text.
struct EndOfAnswer {
  std::string text;           // ChatTemplate::Assistant::end
  std::vector<int32_t> ids;   // each of these tokens ends an answer
  bool is_one_token = false;  // `text` is one token, and in `ids`; else the answer ends where its text contains `text`
};
EndOfAnswer end_of_answer(const ChatTemplate& chat, const Tokenizer& tokenizer);

// Encodes conversations. The whole text is cut into tokens at once, as in transformers' apply_chat_template with
// tokenize=True: the template contains the special tokens, and the tokenizer adds none. For one thread; refers to its
// template and tokenizer, which must outlive it.
class ChatEncoder {
 public:
  // special_texts: what happens to special tokens written in messages. `text` encodes these as text, but those of the
  // template as their ids.
  ChatEncoder(const ChatTemplate& chat, const Tokenizer& tokenizer, SpecialTexts special_texts = SpecialTexts::ids);
  ~ChatEncoder();

  // Appends the ids of a conversation and, for each id, 1 if it counts, else 0. The first token never counts, since no
  // token predicts it. Returns the bytes of the text. Errors: those of render_chat and Encoder::encode_places; special
  // tokens in the messages if they are refused.
  int64_t encode(std::span<const ChatMessage> messages, TrainOn train_on, std::vector<int32_t>& ids,
                 std::vector<uint8_t>& counts);

  // Appends the ids of render_chat_prompt().
  void encode_prompt(std::span<const ChatMessage> messages, std::vector<int32_t>& ids);

 private:
  void encode(const RenderedChat& chat, std::vector<int32_t>& ids);
  void check_specials(std::span<const ChatMessage> messages) const;

  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  SpecialTexts special_texts_;
  SpecialText special_;
  std::unique_ptr<Encoder> encoder_, of_text_;
  std::vector<TextRange> places_;
};

}  // namespace megalith
