// Raw little-endian uint16 tokens, as nanoGPT writes them. Nothing in such a file says what it is, so one that reads as
// a text is refused: its words would be taken for tokens.
#include "data/token_formats.h"

namespace megalith {

namespace {

// Of UTF-8, at its begin: the bytes of one character, 0 where there is none. Characters that no text has (controls but
// white space) are none.
size_t printable_character(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t first = byte(0);
  if (first < 0x80)
    return (first >= 0x20 && first != 0x7f) || first == '\n' || first == '\t' || first == '\r' || first == '\f' ? 1 : 0;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t i = 1; i < length; i++)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return length;
}

// Tokens of any vocabulary below 8192, and most others, have bytes that are no text's. Few tokens may have none, so a
// short file is not judged.
bool reads_as_text(std::string_view bytes) {
  constexpr size_t shortest = 64, looked_at = 64 << 10;
  if (bytes.size() < shortest) return false;
  const std::string_view begin = bytes.substr(0, looked_at);
  for (size_t at = 0; at < begin.size();) {
    const size_t length = printable_character(begin.substr(at));
    if (length == 0) return begin.size() - at < 4 && begin.size() < bytes.size();  // cut inside a character
    at += length;
  }
  return true;
}

}  // namespace

std::unique_ptr<TokenSource> open_raw(const std::string& path) {
  auto file = std::make_unique<MappedFile>(path);
  bool is_text = false;
  file->reading([&] { is_text = reads_as_text(file->text()); });
  CHECK(
      !is_text,
      "{} is a text, not tokens; make tokens of it with `megalith prepare --text {}` and name the train.bin that this "
      "writes",
      path, path);
  CHECK(file->bytes().size() % 2 == 0,
        "{} has {} bytes, an odd number, and no .idx beside it: neither raw uint16 tokens nor the output of prepare; "
        "it is "
        "truncated, or its .idx is missing",
        path, file->bytes().size());
  return std::make_unique<PackedTokens<uint16_t>>(std::move(file), 0);
}

}  // namespace megalith
