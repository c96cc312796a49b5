// The added tokens of a tokenizer.json. They are cut out of a text before any other step: the leftmost first, and of
// several that begin at the same place the longest. Inside data/ only. Immutable; any number of threads may use it.
//
// A normalized added token is looked for in the normalized text, by its own normalized spelling. The others are looked
// for earlier, in the original text. A special token can be left alone, so that it is plain text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/text_normalizer.h"

namespace megalith {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool is_special = false, is_normalized = false;
  bool takes_left = false, takes_right = false;  // the blanks before or after it are part of it
  bool is_word = false;                          // not found inside a word
};

// Reads the list added_tokens. Errors: a token without text or id; a token listed twice.
std::vector<AddedToken> read_added_tokens(const nlohmann::json& list, const std::string& path);

// Finds some of the added tokens.
class AddedTokenFinder {
 public:
  // Finds the tokens that are, or are not, normalized.
  AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized, const TextNormalizer& normalizer);

  struct Match {
    size_t begin, end;  // also those of a token whose place another one has taken; it then does not count
    int32_t id;         // -1: not found, and begin is the text's end
    size_t next;  // where the next one may begin: before `end` if the token takes blanks after it, as in `tokenizers`
  };
  // Finds the first token that begins at `from` or later; blanks that it takes begin at `done` or later.
  Match next_in(std::string_view text, size_t from, size_t done, bool with_specials) const;

  bool is_empty() const { return nodes_.size() == 1; }
  size_t longest() const { return longest_; }
  // Returns whether any token takes blanks before it, or is not found inside a word.
  bool takes_left() const { return takes_left_; }
  bool looks_around() const { return looks_around_; }

 private:
  struct Node {
    int32_t token = -1;
    std::vector<std::pair<char, int32_t>> next;
  };
  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{Node{}};                             // a trie of the tokens' texts
  std::vector<int32_t> first_ = std::vector<int32_t>(256, -1);  // nodes after the first byte
  size_t longest_ = 0;
  bool only_special_ = true, takes_left_ = false, looks_around_ = false;
};

}  // namespace megalith
