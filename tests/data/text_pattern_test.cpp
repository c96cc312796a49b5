// Regular expressions match what Oniguruma's do, and say when more text could change a match.
#include "data/tokenizers/text_pattern.h"

#include <gtest/gtest.h>

#include "tests/message_of.h"

namespace megalith {
namespace {

// Returns the matches, and what is between them in <>.
std::vector<std::string> parts(const char* pattern, const std::string& text) {
  const TextPattern compiled(pattern, "here");
  TextPattern::Scratch scratch;
  TextPattern::Match match{};
  std::vector<std::string> found;
  size_t done = 0;
  while (done < text.size() && compiled.find(text, done, match, scratch) && match.end > match.begin) {
    if (match.begin > done) found.push_back("<" + text.substr(done, match.begin - done) + ">");
    found.push_back(text.substr(match.begin, match.end - match.begin));
    done = match.end;
  }
  if (done < text.size()) found.push_back("<" + text.substr(done) + ">");
  return found;
}

using Parts = std::vector<std::string>;

const char* const cl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

TEST(TextPattern, CutsAsGpt4) {
  EXPECT_EQ(parts(cl100k, "I'LL go"), (Parts{"I", "'LL", " go"}));
  EXPECT_EQ(parts(cl100k, "it'\xc5\xbf"), (Parts{"it", "'\xc5\xbf"})) << "the long s is an s";
  EXPECT_EQ(parts(cl100k, "12345 x"), (Parts{"123", "45", " x"}));
  EXPECT_EQ(parts(cl100k, "a   b"), (Parts{"a", "  ", " b"}));
  EXPECT_EQ(parts(cl100k, "a  \n \n b"), (Parts{"a", "  \n \n", " b"})) << "the last line's end is given back to";
  EXPECT_EQ(parts(cl100k, "f(x) {}\n\n"), (Parts{"f", "(x", ")", " {}\n\n"}));
  EXPECT_EQ(parts(cl100k,
                  "\xc2\xa0"
                  "caf\xc3\xa9\xf0\x9f\x98\x80"),
            (Parts{"\xc2\xa0"
                   "caf\xc3\xa9",
                   "\xf0\x9f\x98\x80"}));
  EXPECT_EQ(parts(cl100k,
                  "a\xff"
                  "b  "),
            (Parts{"a",
                   "\xff"
                   "b",
                   "  "}))
      << "a stray byte is no letter";
}

TEST(TextPattern, Syntax) {
  EXPECT_EQ(parts("a|ab", "abab"), (Parts{"a", "<b>", "a", "<b>"})) << "the first alternative wins";
  EXPECT_EQ(parts("(?:ab|a)b", "abb ab"), (Parts{"abb", "< >", "ab"}));
  EXPECT_EQ(parts("(ab){2}", "ababab"), (Parts{"abab", "<ab>"}));
  EXPECT_EQ(parts("x{2,3}", "xxxxx"), (Parts{"xxx", "xx"}));
  EXPECT_EQ(parts("x{,2}y", "xxxy"), (Parts{"<x>", "xxy"}));
  EXPECT_EQ(parts("x+?", "xx"), (Parts{"x", "x"}));
  EXPECT_EQ(parts("<.+?>", "<a><b>"), (Parts{"<a>", "<b>"}));
  EXPECT_EQ(parts("x++x", "xxx"), Parts{"<xxx>"}) << "a possessive run gives nothing back";
  EXPECT_EQ(parts("(?>a+)ab", "aaab"), Parts{"<aaab>"});
  EXPECT_EQ(parts("a+ab", "aaab"), Parts{"aaab"});
  EXPECT_EQ(parts("(?:ab)++ab", "abab"), Parts{"<abab>"});
  EXPECT_EQ(parts("a(?=b)", "abac"), (Parts{"a", "<bac>"}));
  EXPECT_EQ(parts("(?<=b)a", "aba"), (Parts{"<ab>", "a"}));
  EXPECT_EQ(parts("(?<!b|\xc3\xa9)a",
                  "\xc3\xa9"
                  "aaba"),
            (Parts{"<\xc3\xa9"
                   "a>",
                   "a", "<ba>"}));
  EXPECT_EQ(parts(R"([a-c\d\]-]+)", "ab3]-d"), (Parts{"ab3]-", "<d>"}));
  EXPECT_EQ(parts(R"([^\W\d_]+)", "a_b1\xc3\xa9"), (Parts{"a", "<_>", "b", "<1>", "\xc3\xa9"}));
  EXPECT_EQ(parts(R"([x[ab]]+)", "axbc"), (Parts{"axb", "<c>"}));
  EXPECT_EQ(parts(R"(\P{L}+|\p{^Lu}+)", "ab1C"), (Parts{"ab1", "<C>"}));
  EXPECT_EQ(parts(R"(\x41\x{e9}\u0042\t)",
                  "A\xc3\xa9"
                  "B\t"),
            Parts{"A\xc3\xa9"
                  "B\t"});
  EXPECT_EQ(parts("(?i)k+|b",
                  "k\xe2\x84\xaa"
                  "KB"),
            (Parts{"k\xe2\x84\xaa"
                   "K",
                   "B"}));
  EXPECT_EQ(parts("a(?i:b)c", "aBcaBC"), (Parts{"aBc", "<aBC>"}));
  EXPECT_EQ(parts(".+", "ab\ncd"), (Parts{"ab", "<\n>", "cd"}));
  EXPECT_EQ(parts(R"(\Aa|a\z)", "aaa"), (Parts{"a", "<a>", "a"}));
  EXPECT_EQ(parts(R"(\w+)", "x\xc2\xbd_\xe2\x80\x8d"), (Parts{"x\xc2\xbd_", "<\xe2\x80\x8d>"}))
      << "as Oniguruma has it";
  EXPECT_EQ(parts(R"(\p{Han}+)",
                  "a\xe4\xb8\xad\xe6\x96\x87"
                  "b"),
            (Parts{"<a>", "\xe4\xb8\xad\xe6\x96\x87", "<b>"}));
}

// A run of any length takes no deep stack.
TEST(TextPattern, LongTexts) {
  std::string text;
  while (text.size() < 2'000'000) text += "ab";
  EXPECT_EQ(parts("(?:ab)+", text), Parts{text});
  EXPECT_EQ(parts("(?:a|b)+c", text.substr(0, 2000)).size(), 1u);
}

TEST(TextPattern, WhatIsNotKnownIsRefused) {
  for (const auto& [pattern, what] :
       std::vector<std::pair<const char*, const char*>>{{R"((a)\1)", R"(\1)"},
                                                        {"^a", "^"},
                                                        {"a$", "$"},
                                                        {R"(\bx)", R"(\b)"},
                                                        {"[[:alpha:]]", "[:"},
                                                        {"[a-z&&[^b]]", "&&"},
                                                        {"(a", "( without )"},
                                                        {"a)", ")"},
                                                        {"[a", "[ without ]"},
                                                        {R"(\p{Greek})", "Greek"},
                                                        {"a{3,1}", "{"},
                                                        {"a{2}+", "{} before"},
                                                        {"(?:a*)*", "may be empty"},
                                                        {"(?<n>a)", "(?<"},
                                                        {"(?i:ss)", "two letters that fold to one"},
                                                        {"*a", "*"},
                                                        {R"((?i:\p{Lu}))", "category in (?i)"},
                                                        {"[b-a]", "range"},
                                                        {"(?i:\xc3\x9f)", "a letter that folds to several"}}) {
    const std::string message = message_of([&, p = pattern] { TextPattern(p, "here"); });
    EXPECT_NE(message.find(what), std::string::npos) << pattern << ": " << message;
    EXPECT_EQ(message.rfind("here: the pattern", 0), 0u) << message;
  }
  EXPECT_NE(message_of([] { TextPattern("(?<=a+)b", "here"); }).find("look-behind with more than"), std::string::npos);
}

// Whatever follows, the matches before the first undecided place stay.
TEST(TextPattern, KnowsWhatMoreTextCouldChange) {
  const TextPattern pattern(cl100k, "here");
  TextPattern::Scratch scratch;
  TextPattern::Match match{};
  const auto sees_end = [&](const std::string& text) {
    scratch.saw_end = false;
    pattern.find(text, 0, match, scratch);
    return scratch.saw_end;
  };
  EXPECT_FALSE(sees_end("ab c"));
  EXPECT_TRUE(sees_end("ab"));
  EXPECT_FALSE(sees_end("123")) << "a fourth digit is another piece";
  EXPECT_TRUE(sees_end("12"));
  EXPECT_TRUE(sees_end("  ")) << "a letter would take the last blank";
  EXPECT_TRUE(sees_end("'l"));
  EXPECT_EQ(TextPattern(R"(\d\d)", "here").undecided_from("ab1c2", 0, scratch), 4u);
  EXPECT_EQ(TextPattern::of_text("abc").undecided_from("xxab", 0, scratch), 2u);
}

}  // namespace
}  // namespace megalith
