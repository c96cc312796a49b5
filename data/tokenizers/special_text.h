// Finds special tokens written out in a text, as <|user|> or the end of a text, and encodes each as one id. Immutable;
// any number of threads may use it at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace megalith {

enum class SpecialTexts {
  ids,    // they become their ids, as in transformers
  text,   // they are encoded as any other text
  refuse  // they make a document bad, and a prompt an error
};

class SpecialText {
 public:
  explicit SpecialText(const Tokenizer& tokenizer);

  struct Match {
    size_t begin, size;  // size 0: not found
    int32_t id;
  };
  // Returns the first one; of several that begin there, the longest.
  Match first_in(std::string_view text) const;

  // Returns an encoder that does as the tokenizer's, but encodes special tokens as their ids. It refers to this and to
  // the tokenizer.
  std::unique_ptr<Encoder> encoder(const Tokenizer& tokenizer) const;

  // Returns a cut as Tokenizer::last_cut does, or an earlier one that is inside no special token, complete or not.
  size_t last_cut(const Tokenizer& tokenizer, std::string_view text) const;

 private:
  std::vector<SpecialToken> names_;
  std::string first_bytes_;  // of the names
};

// Encodes a single text, such as a prompt, without what the tokenizer puts before and behind it. Error if special
// tokens are refused and it has one; `what` begins the message.
void encode_with_specials(const Tokenizer& tokenizer, std::string_view text, std::vector<int32_t>& out,
                          SpecialTexts how = SpecialTexts::ids, const std::string& what = "the text");

// Returns where the first special token stands and which choice does what; "" if there is none. `behind`: the file's
// byte before the text, if the text is a part of it.
std::string why_refused(const SpecialText& special, std::string_view text, std::optional<int64_t> behind = {});

}  // namespace megalith
