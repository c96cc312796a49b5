// Continues texts in the places of a Decoder, all of them at once, each by a token a pass.
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

// Which tokens end a text.
struct TextEnds {
  std::vector<int32_t> tokens = {};  // empty: the tokenizer's end of a text
  int64_t least = 0;                 // tokens before which none of them comes
};

struct Generation {
  int64_t tokens = 200;                 // most tokens to add
  int64_t samples = 1;                  // per prompt
  int64_t batch = 8;                    // texts continued at once
  std::vector<std::string> stops = {};  // a text ends before the first of them
  Sampling sampling = {};
  TextEnds ends = {};
  bool shows_specials = false;       // special tokens are part of the text, and else left out of it
  std::vector<uint64_t> draws = {};  // by prompt, what is added to the sample's number in its draws; empty: 0
};

// Ends the message about a result that is not finite.
constexpr const char* why_not_finite =
    "the model's weights, or what is computed from them in this type, are not finite; `megalith checkpoint inspect` "
    "shows the weights, and precision.compute=fp32 has the widest range";

// These are called on rank 0 alone; only `out` must be given.
struct TextSink {
  // Gets the text that is added to a sample of a prompt, piece by piece and of several texts in turn.
  std::function<void(size_t prompt, int64_t sample, std::string_view text)> out;
  std::function<void(size_t prompt, int64_t sample)> end = {};
  // Logits are not finite, and the text ends. Without it, a JobError. All ranks have it or none.
  std::function<void(size_t prompt, int64_t sample)> not_finite = {};
  // Returns whether all texts are to end here; asked before each token. All ranks have it or none.
  std::function<bool()> interrupted = {};
};

// Collective, with the same arguments on all ranks. Continues each prompt, of at least one id, by `tokens` tokens, or
// until the end of the text or a stop string. A text goes on from its last positions() tokens and, whenever these are
// full, from the last half of them, read again from position 0. Tokens are chosen on the first rank that has logits,
// since two machines may round differently. Returns how many tokens were added.
int64_t continue_texts(Decoder& decoder, const Session& session, const Tokenizer& tokenizer,
                       const std::vector<std::vector<int32_t>>& prompts, const Generation& how, const TextSink& sink);

// Returns the next token by a row of logits, after those of the text: number `number` of sample `sample`. These stand
// for the end of the text and for logits that are not finite.
constexpr int32_t text_is_over = -1, logits_not_finite = -2;
int32_t next_token(std::span<const float> logits, const Tokenizer& tokenizer, const Sampling& sampling,
                   const TextEnds& ends, std::span<const int32_t> text, uint64_t sample, int64_t number);

// Tells which tokens are special, so that they are left out of a text.
class SpecialIds {
 public:
  explicit SpecialIds(const Tokenizer& tokenizer);
  // Returns the bytes of a token in a text without special ones.
  std::string_view bytes_of(int32_t token) const;

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;  // ascending
};

}  // namespace megalith
