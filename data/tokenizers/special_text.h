// Finds special tokens written in a text, such as <|user|> or <|endoftext|>, and encodes each as one id. Immutable; any
// number of threads may use it at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace megalith {

enum class SpecialTexts {
  ids,    // encode them as their ids, as in transformers
  text,   // encode them as any other text
  refuse  // a document with one is bad, a prompt with one an error
};

class SpecialText {
 public:
  explicit SpecialText(const Tokenizer& tokenizer);

  struct Match {
    size_t begin, size;  // size 0: not found
    int32_t id;
  };
  // Returns the first special token; of several that begin at the same place, the longest.
  Match first_in(std::string_view text) const;

  // Returns an encoder like the tokenizer's that encodes special tokens as their ids. It refers to this object and to
  // the tokenizer.
  std::unique_ptr<Encoder> encoder(const Tokenizer& tokenizer) const;

  // Returns a cut as Tokenizer::last_cut does, or an earlier one, so that it is not inside a special token, complete or
  // not.
  size_t last_cut(const Tokenizer& tokenizer, std::string_view text) const;

 private:
  std::vector<SpecialToken> names_;
  std::string first_bytes_;  // first bytes of the tokens' texts
};

// Encodes a single text, such as a prompt, without the tokens that the tokenizer adds at its ends. Error if special
// tokens are refused and it has one; `what` begins the message.
void encode_with_specials(const Tokenizer& tokenizer, std::string_view text, std::vector<int32_t>& out,
                          SpecialTexts how = SpecialTexts::ids, const std::string& what = "the text");

// Returns where the first special token is and what each choice would do; "" if there is none. If the text is a part of
// a file, `behind` is the byte before it.
std::string why_refused(const SpecialText& special, std::string_view text, std::optional<int64_t> behind = {});

}  // namespace megalith
