// Special tokens that are written out in a text, as <|user|> or the end of a text: where they stand, and the ids of a
// text in which they are one token each.
//
// Immutable; any number of threads may use it at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace megalith {

enum class SpecialTexts {
  ids,    // are their tokens, as in transformers
  text,   // are text like any other
  refuse  // make a document a bad one, and a prompt an error
};

class SpecialText {
 public:
  explicit SpecialText(const Tokenizer& tokenizer);

  struct Place {
    size_t begin, size;  // size 0: there is none
    int32_t id;
  };
  // The first; of several that begin there, the longest.
  Place first_in(std::string_view text) const;

  // Encodes as Encoder::encode does, and gives these tokens by their ids.
  void encode(Encoder& encoder, std::string_view text, std::vector<int32_t>& out) const;

  // A cut of a text, as of Tokenizer::last_cut, or an earlier one that lies in none of these tokens, of which the end
  // may be in what follows.
  size_t last_cut(const Tokenizer& tokenizer, std::string_view text) const;

 private:
  std::vector<SpecialToken> names_;
  std::string first_bytes_;  // of the names
};

// The same for a single text, such as a prompt, and what special tokens in it are. Error where it has one and is
// refused; `what` begins its message.
void encode_with_specials(const Tokenizer& tokenizer, std::string_view text, std::vector<int32_t>& out,
                          SpecialTexts how = SpecialTexts::ids, const std::string& what = "the text");

// Where the first stands, and which choice does what; "" where there is none. `behind`: a byte of the file before it,
// where the text is a part of one.
std::string why_refused(const SpecialText& special, std::string_view text, std::optional<int64_t> behind = {});

}  // namespace megalith
