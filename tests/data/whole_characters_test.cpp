#include "data/whole_characters.h"

#include <gtest/gtest.h>

namespace megalith {
namespace {

TEST(WholeCharacters, HoldBackTheBeginningOfOne) {
  const std::string text = "a\u00e4\u20ac\U0001f600b";
  for (size_t cut = 0; cut <= text.size(); cut++) {
    WholeCharacters characters;
    const std::string first = characters.add(text.substr(0, cut));
    EXPECT_TRUE(text.starts_with(first));
    EXPECT_LE(cut - first.size(), 3u);
    for (const size_t inside : {2, 4, 5, 7, 8, 9}) EXPECT_NE(first.size(), inside) << "in the middle of a character";
    const std::string second = characters.add(text.substr(cut));
    EXPECT_EQ(first + second + characters.rest(), text);
  }
  WholeCharacters characters;
  EXPECT_EQ(characters.add("\xff\x80\x80\x80\x80"), "\xff\x80\x80\x80\x80") << "no UTF-8 is not held back";
  EXPECT_EQ(characters.add("a\xc3"), "a");
  EXPECT_EQ(characters.rest(), "\xc3") << "the text ends here";
}

}  // namespace
}  // namespace megalith
