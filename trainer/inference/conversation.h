// A conversation with a model. Its tokens are in the cache of a Decoder: a further message computes only the tokens
// that differ from the cache.
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
  // Uses slot 0 of the decoder. An answer ends with the template's end, the tokenizer's, or any of `ends`. All
  // arguments must outlive the conversation.
  Conversation(Decoder& decoder, const Session& session, const Tokenizer& tokenizer, const ChatTemplate& chat,
               SpecialTexts special_texts, const std::vector<int32_t>& ends);

  struct How {
    int64_t tokens = 0;  // maximum number of tokens in an answer; 0: as many as there is room for
    Sampling sampling = {};
    int64_t least = 0;            // minimum number of tokens in an answer
    bool shows_specials = false;  // special tokens are part of an answer; otherwise they are left out
    // Callbacks, called only on rank 0. The first gets pieces of the answer as they come.
    std::function<void(std::string_view)> out;
    std::function<bool()> interrupted = {};              // called before each token: whether the answer must end
    std::function<void(int64_t messages)> forgets = {};  // called before the answer if messages are dropped
  };
  struct Answer {
    enum class End { whole, length, interrupted, full };
    End end = End::whole;
    int64_t kept = 0, read = 0;  // tokens before the answer: found in the cache, and computed
  };

  // Collective, with the same message on all ranks. If there is no room for the conversation and for an answer of a
  // quarter of the positions, the oldest questions and answers are dropped. Errors, which leave the conversation
  // unchanged: the message does not fit by itself; it has a special token that is refused; a system message, but the
  // template has none. JobError: the logits are not finite.
  Answer answer(const std::string& message, const How& how);

  // Begins a new conversation with this system message, or without one if it is "".
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
  std::vector<int32_t> ends_;  // each of them ends an answer
  const SpecialIds specials_;
  ChatEncoder encoder_;
  std::string system_;
  std::vector<ChatMessage> messages_;
  std::vector<int32_t> held_;  // the tokens in the cache
  std::vector<float> logits_;
  uint64_t answers_ = 0;
};

}  // namespace megalith
