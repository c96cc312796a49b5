// Which patterns cut as GPT-2's does: its other forms are known, and near ones are not taken for it.
#include "data/tokenizers/split_pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace megalith {
namespace {

TEST(SplitPattern, OtherFormsOfGpt2sAreTheSame) {
  for (const char* same : {
           R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
           R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
           R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)",
           R"((?:'[stmd]|'re|'ve|'ll)|[ ]?\p{Letter}+|\x20?\p{Number}+| ?+[^\p{N}\p{L}\s]+|\s+(?!\S)|\s++)",
           R"((\'s|\'t|\'re|\'ve|\'m|\'ll|\'d)| ?(?:\p{N}+|\p{L}+|[^\s\p{L}\p{N}]+)|\s+(?![^\s])|\s+)",
           R"( ?\p{L}+|\s+(?!\S)|'d|'ll|'m|'re|'s|'t|'ve| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+)",
       })
    EXPECT_TRUE(cuts_as_gpt2(same)) << same;
}

TEST(SplitPattern, NearOnesAreNot) {
  const std::string words = R"( ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)", ends = R"('s|'t|'re|'ve|'m|'ll|'d)",
                    blanks = R"(\s+(?!\S)|\s+)";
  ASSERT_TRUE(cuts_as_gpt2(ends + "|" + words + "|" + blanks));
  for (const std::string& other : {
           words + "|" + ends + "|" + blanks,              // an apostrophe would be taken first
           ends + "|" + words + R"(|\s+|\s+(?!\S))",       // all blanks would be taken first
           ends + "|" + words + R"(|\s+)",                 // the last blank would not go to the word
           ends + "|" + words + R"(|\s++(?!\S)|\s+)",      // would give none back
           ends + "|" + words + R"(|\s+$|\s+(?!\S)|\s+)",  // $ is also before a line feed
           ends + "|" + words + R"(|(?:\s+)+$|\s+(?!\S)|\s+)",
           "(?i:" + ends + ")|" + words + "|" + blanks,        // GPT-4's
           R"('s|'t|'re|'ve|'m|'ll|)" + words + "|" + blanks,  // without 'd
           ends + R"(| ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|)" + blanks,
           ends + R"(| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|)" + blanks,  // digits alone
           ends + R"(|\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|)" + blanks,
           ends + R"(| ?\p{L}+?| ?\p{N}+| ?[^\s\p{L}\p{N}]+|)" + blanks,
           ends + R"(| ?\p{Lu}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|)" + blanks,
           ends + R"(| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}]+|)" + blanks,
           ends + "|" + words + "|" + blanks + "|x",
           ends + "|" + words + "|" + blanks + ")",
           "(" + ends + "|" + words + "|" + blanks,
           std::string(100, '('),
           std::string("[^"),
           std::string("\\"),
           std::string(""),
           std::string("[a-z]"),
           std::string("[abcdefgh][abcdefgh][abcdefgh]"),
       })
    EXPECT_FALSE(cuts_as_gpt2(other)) << other;
}

}  // namespace
}  // namespace megalith
