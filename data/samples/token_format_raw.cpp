// Raw little-endian uint16 tokens, as nanoGPT writes them. Such a file has no header, so one that looks like text,
// begins like another format, or has ids of another width is refused.
#include <set>

#include "data/samples/known_files.h"
#include "data/samples/token_formats.h"

namespace megalith {

namespace {

// Returns the length of the UTF-8 character at the beginning, or 0 if it is not printable (a control character other
// than white space).
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

// Tokens of any vocabulary below 8192, and of most others, contain bytes that texts do not have. Short files may have
// none; they pass.
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

// Guesses the width of a file's ids from its first bytes, read as uint16. Of wider ids every second value is near zero,
// and the others are of all sizes; of narrower ids both bytes have similar values.
int width_of_ids(std::string_view bytes) {
  constexpr size_t fewest = 16;
  const auto byte = [&](size_t i) { return size_t{static_cast<uint8_t>(bytes[i])}; };
  const auto pair = [&](size_t i) { return byte(2 * i) | byte(2 * i + 1) << 8; };
  const size_t wide = bytes.size() / 4;  // the number of 4-byte ids
  if (wide < fewest) return 2;
  size_t most_low = 0, most_high = 0, odd_ones = 0;
  for (size_t i = 0; i < wide; i++) {
    most_low = std::max(most_low, pair(2 * i));
    most_high = std::max(most_high, pair(2 * i + 1));
    if (i % 2 == 1) odd_ones |= pair(2 * i) | pair(2 * i + 1);
  }
  constexpr size_t most_of_wide = 16;  // a vocabulary of 2^20
  if (most_high < most_of_wide && most_low > most_high * 256) return odd_ones == 0 ? 8 : 4;

  std::set<size_t> low, high;
  size_t above = 0;
  for (size_t i = 0; i < bytes.size() / 2; i++) {
    low.insert(byte(2 * i));
    high.insert(byte(2 * i + 1));
    above += byte(2 * i + 1) > 0;
  }
  constexpr size_t most_of_narrow = 128;
  const bool is_narrow = *low.rbegin() < most_of_narrow && *high.rbegin() < most_of_narrow && low.size() >= fewest &&
                         high.size() >= fewest && above >= bytes.size() / 2 / 4 * 3;
  return is_narrow ? 1 : 2;
}

}  // namespace

std::unique_ptr<TokenSource> open_raw(const std::string& path) {
  auto file = std::make_unique<MappedFile>(path);
  std::string head(std::min(known_head_bytes, file->bytes().size()), '\0');
  file->read(0, head.data(), static_cast<int64_t>(head.size()));
  check_holds_tokens(head, path);
  bool is_text = false;
  file->reading([&] { is_text = reads_as_text(file->text()); });
  CHECK(!is_text,
        "{} is a text, not tokens; make tokens of it with `megalith prepare --text {}` and name the train.bin that "
        "this writes",
        path, path);
  CHECK(file->bytes().size() % 2 == 0,
        "{} has {} bytes, an odd number, and no .idx: it is neither raw uint16 tokens nor the output of prepare; it is "
        "truncated, or its .idx is missing",
        path, file->bytes().size());
  std::string begin(std::min<size_t>(64 << 10, file->bytes().size()), '\0');
  file->read(0, begin.data(), static_cast<int64_t>(begin.size()));
  const int width = width_of_ids(begin);
  CHECK(width == 2,
        "{} seems to have ids of {}, but raw files are read as ids of 2; add the width with numpy: python3 -c \"import "
        "numpy; numpy.save('{}.npy', numpy.fromfile('{}', '{}'))\", and name that file",
        path, width == 1 ? "1 byte" : fmt::format("{} bytes", width), path, path,
        width == 1 ? "u1" : fmt::format("<u{}", width));
  return std::make_unique<PackedTokens<uint16_t>>(std::move(file), 0);
}

}  // namespace megalith
