#include "data/tokenizers/pretokenizer.h"

#include <functional>
#include <map>

#include "tests/data/scratch.h"

namespace megalith {
namespace {

using test::random_text;

const Pretokenizer& pretokenizer() {
  static const Pretokenizer it;
  return it;
}

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    pieces.emplace_back(text.substr(0, pretokenizer().first_pretoken(text)));
    text.remove_prefix(pieces.back().size());
  }
  return pieces;
}

// The plain twin: the text as a list of characters, the pattern as a list of alternatives.
struct ReferenceCharacter {
  std::string bytes;
  CharClass kind;
};

std::vector<ReferenceCharacter> characters_of(const std::string& text) {
  std::vector<ReferenceCharacter> characters;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf8 ? 4 : 0;
    bool valid = length > 0 && i + length <= text.size();
    char32_t code = length == 1 ? lead : lead & (0x7fu >> length);
    for (size_t k = 1; valid && k < length; k++) {
      valid = (text[i + k] & 0xc0) == 0x80;
      code = code << 6 | (text[i + k] & 0x3f);
    }
    constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    valid = valid && code >= least[length] && code < 0x110000 && !(code >= 0xd800 && code < 0xe000);
    characters.push_back(
        {text.substr(i, valid ? length : 1), valid ? pretokenizer().class_of(code) : CharClass::other});
    i += characters.back().bytes.size();
  }
  return characters;
}

std::vector<std::string> plain_pieces_of(const std::string& text) {
  const std::vector<ReferenceCharacter> all = characters_of(text);
  const auto run = [&](size_t from, CharClass kind) {
    size_t i = from;
    while (i < all.size() && all[i].kind == kind) i++;
    return i - from;
  };
  const auto match = [&](size_t i) -> size_t {
    for (const std::string contraction : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
      std::string next;
      for (size_t k = i; k < std::min(all.size(), i + contraction.size()); k++) next += all[k].bytes;
      if (next == contraction) return contraction.size();
    }
    for (const CharClass kind : {CharClass::letter, CharClass::number, CharClass::other}) {
      const size_t space = all[i].bytes == " " ? 1 : 0;
      if (const size_t n = run(i + space, kind); n > 0) return space + n;
    }
    const size_t spaces = run(i, CharClass::space);
    return i + spaces < all.size() && spaces > 1 ? spaces - 1 : spaces;
  };
  std::vector<std::string> pieces;
  for (size_t i = 0; i < all.size();) {
    std::string piece;
    for (size_t n = match(i); n > 0; n--) piece += all[i++].bytes;
    pieces.push_back(piece);
  }
  return pieces;
}

TEST(Pretokenizer, KnownPieces) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces_of("Hello world's  end\n\n x"), (Pieces{"Hello", " world", "'s", " ", " end", "\n\n", " x"}));
  EXPECT_EQ(pieces_of("DON'T 'tis  "), (Pieces{"DON", "'", "T", " '", "tis", "  "}));
  EXPECT_EQ(pieces_of("a\nb\n\nc"), (Pieces{"a", "\n", "b", "\n", "\n", "c"}));
  EXPECT_EQ(pieces_of("12ab!?3"), (Pieces{"12", "ab", "!?", "3"}));
}

TEST(Pretokenizer, ClassesAreThoseOfUnicode16) {
  std::map<CharClass, int> count;
  for (char32_t c = 0; c < 0x110000; c++) count[pretokenizer().class_of(c)]++;
  EXPECT_EQ(count[CharClass::letter], 141028);
  EXPECT_EQ(count[CharClass::number], 1911);
  EXPECT_EQ(count[CharClass::space], 25);
  for (const char32_t c : {0x1cu, 0x1fu, 0x180eu, 0x200bu, 0xfeffu})
    EXPECT_EQ(pretokenizer().class_of(c), CharClass::other);
}

TEST(Pretokenizer, EqualsThePatternOnRandomText) {
  for (unsigned seed = 0; seed < 400; seed++) {
    const std::string text = random_text(1 + seed % 97, seed);
    ASSERT_EQ(pieces_of(text), plain_pieces_of(text)) << "seed " << seed;
  }
  const std::string text = random_text(100'000, 1000);
  EXPECT_EQ(pieces_of(text), plain_pieces_of(text));
}

TEST(Pretokenizer, ACutChangesNoPieceWhateverFollows) {
  int num_cuts = 0;
  for (unsigned seed = 0; seed < 2000; seed++) {
    const std::string text = random_text(1 + seed % 41, seed);
    const size_t cut = pretokenizer().last_cut(text);
    ASSERT_LE(cut, text.size());
    if (cut == 0) continue;
    num_cuts++;
    for (const std::string more : {"", "a", " ", "'s", "s", "\x80", "\xbf\xbf", "\n", "1", "!"}) {
      std::vector<std::string> parts = pieces_of(text.substr(0, cut));
      for (const auto& piece : pieces_of(text.substr(cut) + more)) parts.push_back(piece);
      ASSERT_EQ(parts, pieces_of(text + more)) << "seed " << seed << " cut " << cut;
    }
  }
  EXPECT_GT(num_cuts, 1000);
}

TEST(Pretokenizer, ARunHasNoCut) {
  EXPECT_EQ(pretokenizer().last_cut(std::string(5000, 'a')), 0u);
  EXPECT_EQ(pretokenizer().last_cut(std::string(5000, ' ')), 0u);
  EXPECT_EQ(pretokenizer().last_cut("abc def ghi"), 7u);
}

}  // namespace
}  // namespace megalith
