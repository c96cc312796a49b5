// A conversation with a model. What was said lies in the cache of a Decoder: a further message costs the tokens that
// the cache does not begin with, and no others.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/conversations/chat_template.h"
#include "data/tokenizers/tokenizer.h"
#include "trainer/inference/continued_texts.h"
#include "trainer/inference/sampling.h"
#include "trainer/parallel/decoder.h"
#include "trainer/session/session.h"

namespace megalith {

class Conversation {
 public:
  // Uses place 0 of the decoder. An answer ends with the template's end, the tokenizer's, and any of `ends`. All
  // arguments must outlive it.
  Conversation(Decoder& decoder, const Session& session, const Tokenizer& tokenizer, const ChatTemplate& chat,
               SpecialTexts special_texts, const std::vector<int32_t>& ends);

  struct How {
    int64_t tokens = 0;  // most tokens of an answer; 0: as many as there is room for
    Sampling sampling = {};
    int64_t least = 0;            // tokens of an answer before which it does not end
    bool shows_specials = false;  // special tokens are part of an answer, and else left out of it
    // These are called on rank 0 alone, the first with pieces of the answer as they come.
    std::function<void(std::string_view)> out;
    std::function<bool()> interrupted = {};              // before each token: whether the answer is to end
    std::function<void(int64_t messages)> forgets = {};  // before the answer, where messages are forgotten
  };
  struct Answer {
    enum class End { whole, length, interrupted, full };
    End end = End::whole;
    int64_t kept = 0, read = 0;  // tokens before the answer: in the cache already, and computed
  };

  // Collective, with the same message on all ranks. Where there is no room for the conversation and a quarter of the
  // positions for the answer, the oldest question is forgotten with its answer, and so on. Errors, after which the
  // conversation is what it was: the message alone does not fit; it has a special token that is refused; the template
  // has no system message, and there is one. JobError: the logits are not finite.
  Answer answer(const std::string& message, const How& how);

  // Begins anew, with this system message; "": none.
  void begin(const std::string& system);
  const std::string& system() const { return system_; }

 private:
  std::vector<int32_t> ids_of(const std::vector<ChatMessage>& messages);
  std::vector<int32_t> fitted(std::vector<ChatMessage>& messages);
  void read(const std::vector<int32_t>& ids, Answer& answer);
  Answer::End write(const How& how, std::string& text);
  int32_t next(const How& how, int64_t number);

  Decoder& decoder_;
  const Session& session_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_;
  const EndOfAnswer end_;
  std::vector<int32_t> ends_;  // of each of these an answer ends
  const SpecialIds specials_;
  ChatEncoder encoder_;
  std::string system_;
  std::vector<ChatMessage> messages_;
  std::vector<int32_t> held_;  // what the cache holds
  std::vector<float> logits_;
  uint64_t answers_ = 0;
};

}  // namespace megalith
