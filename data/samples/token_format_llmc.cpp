// llm.c's token files: a header of 256 int32 {magic, version, number of tokens}, then the tokens. Magic and version
// give the width: uint16 for GPT-2's ids, uint32 for Llama 3's (HEADERS_INFO in its dev/data/data_common.py).
#include "data/samples/token_formats.h"

namespace megalith {

namespace {

constexpr size_t header_bytes = 256 * sizeof(int32_t);
constexpr int32_t magic_uint16 = 20240520, magic_uint32 = 20240801;
constexpr int32_t version_uint16 = 1, version_uint32 = 7;

int32_t header_field(const MappedFile& file, size_t index) {
  int32_t value;
  file.read(static_cast<int64_t>(index * sizeof(value)), &value, sizeof(value));
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
  CHECK(bytes > header_bytes, "{} has llm.c's magic number, but {} bytes; the header is {}: it is truncated", path,
        bytes, header_bytes);
  const int32_t magic = header_field(*file, 0), version = header_field(*file, 1), tokens = header_field(*file, 2);
  const bool wide = magic == magic_uint32;
  CHECK(version == (wide ? version_uint32 : version_uint16),
        "{} is an llm.c file of magic {} and version {}; supported are {} with {} (uint16 tokens) and {} with {} "
        "(uint32)",
        path, magic, version, magic_uint16, version_uint16, magic_uint32, version_uint32);
  const int64_t width = wide ? 4 : 2, want = static_cast<int64_t>(header_bytes) + width * tokens;
  CHECK(tokens >= 1 && static_cast<int64_t>(bytes) == want,
        "{} has a header for {} tokens, {} bytes in all, but the file has {}; it is truncated or damaged", path, tokens,
        want, bytes);
  if (wide) return std::make_unique<PackedTokens<uint32_t>>(std::move(file), header_bytes);
  return std::make_unique<PackedTokens<uint16_t>>(std::move(file), header_bytes);
}

}  // namespace megalith
