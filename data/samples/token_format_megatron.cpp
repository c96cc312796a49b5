// Reads the .bin/.idx pair of indexed_dataset.h, and its .mask if it has one.
#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/samples/indexed_dataset.h"
#include "data/samples/prepared_note.h"
#include "data/samples/token_formats.h"

namespace megalith {

namespace {

namespace format = indexed_dataset;

// Reads the .idx in sequence.
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
  int64_t tokens, documents, sequences;
};

Index check_index(const MappedFile& file) {
  const std::string& path = file.path();
  const uint64_t bytes = file.bytes().size();
  CHECK(bytes >= format::header_bytes, "{} has {} bytes; the header is {}: it is truncated", path, bytes,
        format::header_bytes);
  Reader header(file);
  CHECK(header.next<format::Magic>() == format::magic,
        "{} does not begin with MMIDIDX, so it is not the index of a token file; prepare the text again", path);
  const auto version = header.next<uint64_t>();
  CHECK(version == format::version, "{} has unsupported version {} (expected {})", path, version, format::version);
  const int code = header.next<uint8_t>();
  CHECK(code == 4 || code == 8, "{} has element type {}; only 8 (uint16) and 4 (int32) are supported", path, code);
  const auto sequences = header.next<uint64_t>(), bounds = header.next<uint64_t>();

  // A longer file is allowed: Megatron-LM appends a mode for each sequence of multimodal data.
  const uint64_t room = bytes - format::header_bytes;
  CHECK(sequences <= room / 12 && bounds <= (room - 12 * sequences) / 8,
        "{} declares {} sequences and {} document bounds, which do not fit in its {} bytes; it is truncated or damaged",
        path, sequences, bounds, bytes);

  Reader lengths = header, pointers = header;
  pointers.skip(sequences * sizeof(int32_t));
  Index index{static_cast<format::Element>(code), 0, std::max<int64_t>(static_cast<int64_t>(bounds) - 1, 0),
              static_cast<int64_t>(sequences)};
  for (uint64_t i = 0; i < sequences; i++) {
    const auto length = lengths.next<int32_t>();
    const auto pointer = pointers.next<int64_t>();
    CHECK(length >= 0 && pointer == index.tokens * format::bytes_of(index.element),
          "{}: sequence {} of {} tokens begins at byte {}, expected {}; the index is damaged, or its sequences are not "
          "contiguous",
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

// Tokens with the document bounds of their index.
class IndexedTokens final : public TokenSource {
 public:
  // `mask` may be null.
  IndexedTokens(std::unique_ptr<TokenSource> tokens, std::unique_ptr<MappedFile> index,
                std::unique_ptr<MappedFile> mask, const Index& checked)
      : tokens_(std::move(tokens)),
        index_(std::move(index)),
        mask_(std::move(mask)),
        sequences_(checked.sequences),
        documents_(checked.documents),
        width_(format::bytes_of(checked.element)) {}

  int64_t size() const override { return tokens_->size(); }
  int32_t max_possible_token() const override { return tokens_->max_possible_token(); }
  void read(int64_t begin, std::span<int32_t> out) const override { tokens_->read(begin, out); }
  int32_t max_token(int64_t begin, int64_t end) const override { return tokens_->max_token(begin, end); }

  bool is_masked() const override { return mask_ != nullptr; }
  void read_mask(int64_t begin, std::span<uint8_t> out) const override {
    mask_->read(begin, out.data(), std::ssize(out));
  }

  std::optional<int64_t> document_after(int64_t at) const override {
    int64_t low = 0, high = documents_;  // the first document that begins after `at` is among [low, high]
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      begin_of(middle) > at ? high = middle : low = middle + 1;
    }
    return begin_of(low);
  }

 private:
  int64_t begin_of(int64_t document) const {
    const int64_t pointers = static_cast<int64_t>(format::header_bytes) + sequences_ * int64_t{sizeof(int32_t)};
    int64_t sequence = 0, pointer = 0;
    if (document == documents_) return size();
    index_->read(pointers + (sequences_ + document) * int64_t{sizeof(int64_t)}, &sequence, sizeof sequence);
    if (sequence == sequences_) return size();
    index_->read(pointers + sequence * int64_t{sizeof(int64_t)}, &pointer, sizeof pointer);
    return pointer / width_;
  }

  std::unique_ptr<TokenSource> tokens_;
  std::unique_ptr<MappedFile> index_, mask_;
  int64_t sequences_, documents_, width_;
};

// Error: prepare made a mask with these tokens, and it is missing.
void check_made_without_mask(const std::string& bin_path) {
  namespace fs = std::filesystem;
  const fs::path bin = bin_path, mask = fs::path(bin).replace_extension(".mask");
  std::vector<std::string> names;
  try {
    if (const auto made = read_prepared_note(bin.parent_path().string()))
      names = made->at("made").at("names").get<std::vector<std::string>>();
  } catch (const std::exception&) {  // a file of another program with this name
    return;
  }
  CHECK(std::ranges::find(names, mask.filename().string()) == names.end(),
        "{} was prepared from conversations, but {}, the mask of the tokens that count, is missing: all of them would "
        "count; restore it, or prepare the conversations again",
        bin_path, mask.string());
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
  auto idx = std::make_unique<MappedFile>(idx_path);
  idx->reading([&] { index = check_index(*idx); });
  auto bin = std::make_unique<MappedFile>(bin_path);
  const int64_t want = index.tokens * format::bytes_of(index.element);
  CHECK(static_cast<int64_t>(bin->bytes().size()) == want,
        "{} has {} bytes, but {} lists {} tokens of {} bytes, {} in all; one of the two is truncated or from another "
        "run: prepare the text again",
        bin_path, bin->bytes().size(), idx_path, index.tokens, format::bytes_of(index.element), want);
  documents = index.documents;
  std::unique_ptr<TokenSource> tokens;
  if (index.element == format::Element::uint16)
    tokens = std::make_unique<PackedTokens<uint16_t>>(std::move(bin), 0);
  else
    tokens = std::make_unique<PackedTokens<int32_t>>(std::move(bin), 0);
  std::unique_ptr<MappedFile> mask;
  if (const std::string mask_path = mask_path_of(bin_path); !mask_path.empty()) {
    mask = std::make_unique<MappedFile>(mask_path);
    CHECK(static_cast<int64_t>(mask->bytes().size()) == index.tokens,
          "{} has {} bytes, but {} lists {} tokens, which have one byte each there; one of the two is truncated or "
          "from another run: prepare the text again",
          mask_path, mask->bytes().size(), idx_path, index.tokens);
  } else {
    check_made_without_mask(bin_path);
  }
  return std::make_unique<IndexedTokens>(std::move(tokens), std::move(idx), std::move(mask), index);
}

}  // namespace megalith
