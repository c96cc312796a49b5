// Continues texts in the slots of a Decoder, all at once, one token each per pass.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "trainer/inference/sampling.h"
#include "trainer/parallel/decoder.h"
#include "trainer/session/session.h"

namespace megalith {

// When a text ends.
struct TextEnds {
  std::vector<int32_t> tokens = {};  // empty: the tokenizer's end_of_text
  int64_t least = 0;                 // minimum number of tokens before one of these may come
};

struct Generation {
  int64_t tokens = 200;                 // maximum number of tokens to add
  int64_t samples = 1;                  // per prompt
  int64_t batch = 8;                    // texts continued at once
  std::vector<std::string> stops = {};  // a text ends before the first occurrence of any of these
  Sampling sampling = {};
  TextEnds ends = {};
  bool shows_specials = false;       // special tokens are part of the text; otherwise they are left out
  std::vector<uint64_t> draws = {};  // by prompt: added to the sample's number in its draws; empty: 0
};

// The end of the message about a result that is not finite.
constexpr const char* why_not_finite =
    "the model's weights, or results computed from them in this type, are not finite; `megalith checkpoint inspect` "
    "shows the weights, and precision.compute=fp32 has the widest range";

// Callbacks, called only on rank 0; only `out` is required.
struct TextSink {
  // Gets the text that is added to a sample of a prompt, in pieces; the pieces of several texts alternate.
  std::function<void(size_t prompt, int64_t sample, std::string_view text)> out;
  std::function<void(size_t prompt, int64_t sample)> end = {};
  // Called if logits are not finite; the text ends. Without it, a JobError. Set on all ranks or on none.
  std::function<void(size_t prompt, int64_t sample)> not_finite = {};
  // Returns whether all texts must end now; called before each token. Set on all ranks or on none.
  std::function<bool()> interrupted = {};
};

// Collective, with the same arguments on all ranks. Continues each prompt, of at least one id, by `tokens` tokens, or
// until the end of the text or a stop string. A text begins with the last positions() tokens of its prompt. Whenever
// its positions are full, the older half of the context is dropped and the rest is read again from position 0. Tokens
// are chosen on the first rank that has logits, since two machines may round differently. Returns how many tokens were
// added.
int64_t continue_texts(Decoder& decoder, const Session& session, const Tokenizer& tokenizer,
                       const std::vector<std::vector<int32_t>>& prompts, const Generation& how, const TextSink& sink);

// Returns the next token from a row of logits: token `number` of sample `sample`. The constants stand for the end of
// the text and for logits that are not finite.
constexpr int32_t text_is_over = -1, logits_not_finite = -2;
int32_t next_token(std::span<const float> logits, const Tokenizer& tokenizer, const Sampling& sampling,
                   const TextEnds& ends, std::span<const int32_t> text, uint64_t sample, int64_t number);

// Knows which tokens are special, so that they are left out of a text.
class SpecialIds {
 public:
  explicit SpecialIds(const Tokenizer& tokenizer);
  // Returns the bytes of a token in a text; empty for special tokens.
  std::string_view bytes_of(int32_t token) const;

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;  // ascending
};

}  // namespace megalith
