// Bytes as they are shown.
#include "data/tokenizers/quoted.h"

#include <gtest/gtest.h>

namespace megalith {
namespace {

TEST(Quoted, IsAlwaysUtf8) {
  EXPECT_EQ(quoted_bytes(""), "\"\"");
  EXPECT_EQ(quoted_bytes(" the\n\"\\\t\x7f"), "\" the\\n\\\"\\\\\\x09\\x7f\"");
  EXPECT_EQ(quoted_bytes("caf\xc3\xa9 \xf0\x9f\x98\x80"), "\"caf\xc3\xa9 \xf0\x9f\x98\x80\"");
  EXPECT_EQ(quoted_bytes("\xf0\x9f\x98"), "\"\\xf0\\x9f\\x98\"") << "the begin of an emoji";
  EXPECT_EQ(quoted_bytes("\x80\xf0\x9f\x98\x80\xf0\x9f"), "\"\\x80\xf0\x9f\x98\x80\\xf0\\x9f\"");
  EXPECT_EQ(quoted_bytes("\xc0\xaf"), "\"\\xc0\\xaf\"") << "overlong";
}

}  // namespace
}  // namespace megalith
