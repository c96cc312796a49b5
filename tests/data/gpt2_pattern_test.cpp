// The pretokenizer of GPT-2 stands for known spellings of its pattern and not for similar patterns. Other spellings run
// as patterns and give the same pre-tokens.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/tokenizers/pretokenizer.h"
#include "data/tokenizers/text_pattern.h"

namespace megalith {
namespace {

TEST(Gpt2Pattern, KnownSpellings) {
  for (const char* known : {
           R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
           R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
           R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)",
       })
    EXPECT_TRUE(is_gpt2_pattern(known)) << known;
  for (const char* near : {
           // An apostrophe would be taken first.
           R"( ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|'s|'t|'re|'ve|'m|'ll|'d|\s+(?!\S)|\s+)",
           // The last blank would not go to the word.
           R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+)",
           // This has GPT-4's contractions.
           R"((?i:'s|'t|'re|'ve|'m|'ll|'d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
           // This is malformed.
           R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+))",
           "",
       })
    EXPECT_FALSE(is_gpt2_pattern(near)) << near;
}

TEST(Gpt2Pattern, OtherSpellingsGiveTheSamePretokens) {
  const std::string text = "I'll  say:\n\n 'tis 1st-rate, isn't it?  Ça va…  \t x² 'd'  ";
  std::vector<std::string> expected;
  const Pretokenizer pretokenizer;
  for (std::string_view rest = text; !rest.empty();) {
    expected.emplace_back(rest.substr(0, pretokenizer.first_pretoken(rest)));
    rest.remove_prefix(expected.back().size());
  }
  for (const char* same : {
           R"((?:'[stmd]|'re|'ve|'ll)|[ ]?\p{Letter}+|\x20?\p{Number}+| ?+[^\p{N}\p{L}\s]+|\s+(?!\S)|\s++)",
           R"((\'s|\'t|\'re|\'ve|\'m|\'ll|\'d)| ?(?:\p{N}+|\p{L}+|[^\s\p{L}\p{N}]+)|\s+(?![^\s])|\s+)",
           R"( ?\p{L}+|\s+(?!\S)|'d|'ll|'m|'re|'s|'t|'ve| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+)",
       }) {
    EXPECT_FALSE(is_gpt2_pattern(same)) << same;
    const TextPattern pattern(same, "tokenizer.json");
    std::vector<std::string> found;
    TextPattern::Scratch scratch;
    TextPattern::Match match{};
    for (size_t at = 0; pattern.find(text, at, match, scratch); at = match.end) {
      EXPECT_EQ(match.begin, at);
      found.push_back(text.substr(match.begin, match.end - match.begin));
    }
    EXPECT_EQ(found, expected) << same;
  }
}

}  // namespace
}  // namespace megalith
