// Reads the .bin/.idx pair of indexed_dataset.h.
#include <array>

#include "data/indexed_dataset.h"
#include "data/token_formats.h"

namespace megalith {

namespace {

namespace format = indexed_dataset;

// Reads the .idx from front to back.
class Reader {
 public:
  explicit Reader(const MappedFile& file) : bytes_(file.bytes()) {}
  template <class T>
  T next() {
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  void skip(size_t bytes) { at_ += bytes; }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

struct Index {
  format::Element element;
  int64_t tokens, documents;
};

Index check_index(const MappedFile& file) {
  const std::string& path = file.path();
  const uint64_t bytes = file.bytes().size();
  CHECK(bytes >= format::header_bytes, "{} has {} bytes, and the header alone is {}; it is truncated", path, bytes,
        format::header_bytes);
  Reader header(file);
  CHECK(header.next<format::Magic>() == format::magic,
        "{} does not begin with MMIDIDX, so it is not the index of a token file; prepare the text again", path);
  const auto version = header.next<uint64_t>();
  CHECK(version == format::version, "{} is of version {}; only version {} is read", path, version, format::version);
  const int code = header.next<uint8_t>();
  CHECK(code == 4 || code == 8, "{} has element type {}; only 8 (uint16) and 4 (int32) are read", path, code);
  const auto sequences = header.next<uint64_t>(), bounds = header.next<uint64_t>();

  // Longer is allowed: Megatron-LM appends a mode for each sequence of multimodal data.
  const uint64_t room = bytes - format::header_bytes;
  CHECK(
      sequences <= room / 12 && bounds <= (room - 12 * sequences) / 8,
      "{} announces {} sequences and {} document bounds, which do not fit in its {} bytes; it is truncated or damaged",
      path, sequences, bounds, bytes);

  Reader lengths = header, pointers = header;
  pointers.skip(sequences * sizeof(int32_t));
  Index index{static_cast<format::Element>(code), 0, std::max<int64_t>(static_cast<int64_t>(bounds) - 1, 0)};
  for (uint64_t i = 0; i < sequences; i++) {
    const auto length = lengths.next<int32_t>();
    const auto pointer = pointers.next<int64_t>();
    CHECK(length >= 0 && pointer == index.tokens * format::bytes_of(index.element),
          "{}: sequence {} of {} tokens begins at byte {}, expected {}; the index is damaged, or its sequences do not "
          "lie one after the other",
          path, i, length, pointer, index.tokens * format::bytes_of(index.element));
    index.tokens += length;
  }
  int64_t last = 0;
  for (uint64_t i = 0; i < bounds; i++) {
    const auto bound = pointers.next<int64_t>();  // the bounds follow the pointers
    CHECK(bound >= last && bound <= static_cast<int64_t>(sequences) && (i > 0 || bound == 0),
          "{}: document bound {} is {}, after {} and with {} sequences in all; the index is damaged", path, i, bound,
          last, sequences);
    last = bound;
  }
  CHECK(last == static_cast<int64_t>(sequences),
        "{}: the document bounds end at {}, but there are {} sequences; the index is damaged", path, last, sequences);
  return index;
}

}  // namespace

bool is_megatron_index(const std::string& path) {
  const MappedFile file(path);
  if (file.bytes().size() < sizeof(format::Magic)) return false;
  format::Magic begin;
  file.read(0, &begin, sizeof(begin));
  return begin == format::magic;
}

std::unique_ptr<TokenSource> open_megatron(const std::string& bin_path, const std::string& idx_path,
                                           int64_t& documents) {
  Index index{};
  const MappedFile idx(idx_path);
  idx.reading([&] { index = check_index(idx); });
  auto bin = std::make_unique<MappedFile>(bin_path);
  const int64_t want = index.tokens * format::bytes_of(index.element);
  CHECK(
      static_cast<int64_t>(bin->bytes().size()) == want,
      "{} has {} bytes, but {} lists {} tokens of {} bytes, {} in all; one of the two is truncated or of another run: "
      "prepare the text again",
      bin_path, bin->bytes().size(), idx_path, index.tokens, format::bytes_of(index.element), want);
  documents = index.documents;
  if (index.element == format::Element::uint16) return std::make_unique<PackedTokens<uint16_t>>(std::move(bin), 0);
  return std::make_unique<PackedTokens<int32_t>>(std::move(bin), 0);
}

}  // namespace megalith
