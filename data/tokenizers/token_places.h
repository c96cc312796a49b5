// Finds the characters of a text that each token of a tokenizer.json's pipeline stands for. Inside data/ only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/text_normalizer.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

// Walks over a normalized text, which begins at `offset` of the whole, along the bytes of its tokens. A blank also
// matches U+2581. A blank that the tokenizer adds before the text has the place of the character after it; blanks that
// it leaves out belong to no token.
class TokenWalk {
 public:
  // `bytes`: those of each id inside a text.
  TokenWalk(const std::vector<std::string>& bytes, std::string_view text, size_t offset)
      : bytes_(bytes), text_(text), offset_(offset) {}

  // Appends the place of each token. Error: a token's bytes are not at the current place.
  void places_of(std::span<const int32_t> ids, std::vector<TextRange>& places);

 private:
  // Returns the end of the token's bytes if they are at `at`, else npos.
  size_t end_of(std::string_view token, size_t at) const;

  const std::vector<std::string>& bytes_;
  std::string_view text_;
  size_t offset_;
};

// Turns places in a normalized text into places in the original text. `changes` are those of the normalizer if it
// only_composes(). Error: the normalizer changes more than single characters.
void places_before(const TextNormalizer& normalizer, const std::vector<TextNormalizer::Change>& changes,
                   std::string_view before, std::string_view normalized, std::span<TextRange> places);

}  // namespace megalith
