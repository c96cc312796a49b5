#include "data/tokenizers/whole_characters.h"

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
  EXPECT_EQ(characters.add("\xff\x80"), "\ufffd\ufffd") << "no UTF-8 is not held back";
  EXPECT_EQ(characters.add("a\xc3"), "a");
  EXPECT_EQ(characters.rest(), "\ufffd") << "the text ends here";
  EXPECT_EQ(characters.rest(), "");
  // As b"...".decode("utf-8", "replace") of Python has it.
  for (const auto& [bytes, valid] :
       std::vector<std::pair<std::string, std::string>>{{"a\xe2\x82z", "a\ufffdz"},
                                                        {"\xf0\x9f\x98", "\ufffd"},
                                                        {"\xf0\x9f\xffz", "\ufffd\ufffdz"},
                                                        {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
                                                        {"\xc0\xaf", "\ufffd\ufffd"},
                                                        {"\u00e4\xe2\x82", "\u00e4\ufffd"}})
    EXPECT_EQ(valid_utf8(bytes), valid);
}

}  // namespace
}  // namespace megalith
