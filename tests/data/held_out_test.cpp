// Where the end of a document begins that is held out.
#include "data/held_out.h"

#include <gtest/gtest.h>

#include <string>

namespace megalith {
namespace {

int64_t split_of(const std::string& document, double fraction) {
  return HoldOut(HoldOut::Rule::ends, fraction).split_of(document);
}

TEST(HoldOut, AnEndBeginsWithALineOrACharacter) {
  EXPECT_EQ(split_of("12345678", 0.25), 6);
  EXPECT_EQ(split_of("123456789", 0.25), 6) << "rounded up";
  EXPECT_EQ(split_of("1234\n678", 0.25), 5) << "a line that begins as much before";
  EXPECT_EQ(split_of("123\n5\n78", 0.25), 6) << "the nearest";
  EXPECT_EQ(split_of("12\n45678", 0.25), 6) << "too far";
  EXPECT_EQ(split_of("12345\xc3\xa9"
                     "8",
                     0.25),
            7)
      << "the next character";
  EXPECT_EQ(split_of("123456\xc3\xa9", 0.25), 6);
}

TEST(HoldOut, NothingWhereThatIsNoWholeCharacterOrAll) {
  EXPECT_EQ(split_of("caf\xc3\xa9", 0.1), 5);
  EXPECT_EQ(split_of("\xf0\x9f\x98\x80", 0.5), 4);
  EXPECT_EQ(split_of("1", 0.1), 1) << "a byte is left for training";
}

TEST(HoldOut, ALineIsLookedForIn64KiB) {
  const size_t end = 768 << 10;  // of 1 MiB, a quarter held out
  for (const size_t before : {64 << 10, (64 << 10) + 1}) {
    std::string document(1 << 20, 'x');
    document[end - before - 1] = '\n';
    EXPECT_EQ(split_of(document, 0.25), static_cast<int64_t>(before == 64 << 10 ? end - before : end));
  }
}

}  // namespace
}  // namespace megalith
