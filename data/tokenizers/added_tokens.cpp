#include "data/tokenizers/added_tokens.h"

#include <algorithm>
#include <set>

#include "data/tokenizers/tokenizer_parts.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

bool is_inside_word(std::string_view text, size_t begin, size_t end) {
  const uint8_t *first = bytes_of(text), *last = first + text.size();
  const CharacterSet& word = CharacterSet::word();
  return (begin > 0 && word.contains(character_before(first, first + begin).code_point)) ||
         (end < text.size() && word.contains(character_at(first + end, last).code_point));
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const nlohmann::json& list, const std::string& path) {
  std::vector<AddedToken> tokens;
  std::set<std::string> known;
  for (const nlohmann::json& token : list) {
    const nlohmann::json &content = json_member(token, "content"), &id = json_member(token, "id");
    CHECK(content.is_string() && content != "" && id.is_number_integer(),
          "{}: the added token {} has no content or no id", path, json_text(token));
    CHECK(id >= 0 && id < (1 << 30), "{}: the added token {} has the id {}", path, json_text(content), json_text(id));
    const std::string name = "the added token " + json_text(content);
    const bool is_special = flag_member(token, "special", false, name, path);
    tokens.push_back({.content = content.get<std::string>(),
                      .id = id.get<int32_t>(),
                      .is_special = is_special,
                      .is_normalized = flag_member(token, "normalized", !is_special, name, path),
                      .takes_left = flag_member(token, "lstrip", false, name, path),
                      .takes_right = flag_member(token, "rstrip", false, name, path),
                      .is_word = flag_member(token, "single_word", false, name, path)});
    CHECK(known.insert(tokens.back().content).second, "{}: {} is added twice", path, name);
  }
  return tokens;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized,
                                   const TextNormalizer& normalizer) {
  TextNormalizer::Scratch scratch;
  for (const AddedToken& token : tokens) {
    if (token.is_normalized != normalized) continue;
    const std::string text(normalized ? normalizer.apply(token.content, false, scratch) : token.content);
    CHECK(
        !text.empty(),
        "the added token {} is normalized to an empty text, which would match everywhere; set its normalized to false",
        json_text(nlohmann::json(token.content)));
    size_t node = 0;
    for (const char byte : text) {
      auto& next = nodes_[node].next;
      const auto found = std::find_if(next.begin(), next.end(), [&](const auto& edge) { return edge.first == byte; });
      if (found != next.end()) {
        node = static_cast<size_t>(found->second);
        continue;
      }
      const auto made = static_cast<int32_t>(nodes_.size());
      next.emplace_back(byte, made);
      if (node == 0) first_[static_cast<uint8_t>(byte)] = made;
      node = static_cast<size_t>(made);
      nodes_.emplace_back();
    }
    nodes_[node].token = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(token);
    longest_ = std::max(longest_, text.size());
    only_special_ = only_special_ && token.is_special;
    takes_left_ = takes_left_ || token.takes_left;
    looks_around_ = looks_around_ || token.is_word;
  }
}

AddedTokenFinder::Match AddedTokenFinder::next_in(std::string_view text, size_t from, size_t done,
                                                  bool with_specials) const {
  const Match none{text.size(), text.size(), -1, text.size()};
  if (is_empty() || (only_special_ && !with_specials)) return none;
  for (size_t at = from; at < text.size(); at++) {
    if (nodes_[0].next.size() == 1) at = text.find(nodes_[0].next[0].first, at);  // the first byte of every token
    if (at == std::string_view::npos) return none;
    int32_t node = first_[static_cast<uint8_t>(text[at])], longest = -1;
    size_t end = at;
    for (size_t i = at + 1; node >= 0; i++) {
      const Node& here = nodes_[static_cast<size_t>(node)];
      if (here.token >= 0) {
        longest = here.token;
        end = i;
      }
      if (i == text.size()) break;
      node = -1;
      for (const auto& [byte, next] : here.next)
        if (byte == text[i]) node = next;
    }
    if (longest < 0) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(longest)];
    // A token that does not count still hides those that begin inside it.
    if ((token.is_special && !with_specials) || (token.is_word && is_inside_word(text, at, end))) {
      at = end - 1;
      continue;
    }
    const uint8_t *first = bytes_of(text), *last = first + text.size();
    const CharacterSet& blanks = CharacterSet::white_space();
    size_t begin = at;
    const size_t next = end;
    while (token.takes_left && begin > done &&
           blanks.contains(character_before(first + done, first + begin).code_point))
      begin -= character_before(first + done, first + begin).bytes;
    if (token.takes_left) begin = std::max(begin, done);
    while (token.takes_right && end < text.size() && blanks.contains(character_at(first + end, last).code_point))
      end += character_at(first + end, last).bytes;
    return {begin, end, token.id, next};
  }
  return none;
}

}  // namespace megalith
