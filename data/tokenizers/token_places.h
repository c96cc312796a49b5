// Finds which characters of a text each token of a tokenizer.json's pipeline stands for. Inside data/ only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/text_normalizer.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

// Walks over a normalized text, which begins at `offset` of the whole, as the bytes of its tokens come. A blank stands
// for U+2581 as well; one that the tokenizer puts before the text has the place of the character behind it; blanks that
// it leaves out belong to no token.
class TokenWalk {
 public:
  // `bytes` are those of each id inside a text.
  TokenWalk(const std::vector<std::string>& bytes, std::string_view text, size_t offset)
      : bytes_(bytes), text_(text), offset_(offset) {}

  // Appends the place of each token. Error: a token's bytes do not stand there.
  void places_of(std::span<const int32_t> ids, std::vector<TextRange>& places);

 private:
  // Returns where the token's bytes end if they stand at `at`; npos if they do not.
  size_t end_of(std::string_view token, size_t at) const;

  const std::vector<std::string>& bytes_;
  std::string_view text_;
  size_t offset_;
};

// Turns places in a normalized text into those in the text before. `changes` are those of the normalizer if it
// only_composes(). Error: the normalizer changes more than single characters.
void places_before(const TextNormalizer& normalizer, const std::vector<TextNormalizer::Change>& changes,
                   std::string_view before, std::string_view normalized, std::span<TextRange> places);

}  // namespace megalith
