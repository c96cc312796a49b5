// llm.c's token files: a header of 256 int32 {magic, version, number of tokens}, then uint16 tokens.
#include "data/token_formats.h"

namespace megalith {

namespace {

constexpr size_t header_bytes = 256 * sizeof(int32_t);
constexpr int32_t magic_uint16 = 20240520, magic_uint32 = 20240801;

int32_t header_field(const MappedFile& file, size_t index) {
  int32_t value;
  std::memcpy(&value, file.bytes().data() + index * sizeof(value), sizeof(value));
  return value;
}

}  // namespace

bool has_llmc_header(const std::string& path) {
  const MappedFile file(path);
  if (file.bytes().size() < 3 * sizeof(int32_t)) return false;
  const int32_t magic = header_field(file, 0);
  return magic == magic_uint16 || magic == magic_uint32;
}

std::unique_ptr<TokenSource> open_llmc(const std::string& path) {
  auto file = std::make_unique<MappedFile>(path);
  const size_t bytes = file->bytes().size();
  CHECK(bytes > header_bytes, "{} has llm.c's magic number, but {} bytes, and the header alone is {}; it is truncated",
        path, bytes, header_bytes);
  const int32_t magic = header_field(*file, 0), version = header_field(*file, 1), tokens = header_field(*file, 2);
  CHECK(magic == magic_uint16 && version == 1,
        "{} is an llm.c file of magic {} and version {}; only {} and 1 (uint16 tokens) are read", path, magic, version,
        magic_uint16);
  CHECK(tokens >= 1 && bytes == header_bytes + 2 * static_cast<size_t>(tokens),
        "{} has a header that promises {} tokens, {} bytes in all, but the file has {}; it is truncated or damaged",
        path, tokens, static_cast<int64_t>(header_bytes) + 2 * int64_t{tokens}, bytes);
  return std::make_unique<PackedTokens<uint16_t>>(std::move(file), header_bytes);
}

}  // namespace megalith
