// Raw little-endian uint16 tokens, as nanoGPT writes them.
#include "data/token_formats.h"

namespace megalith {

std::unique_ptr<TokenSource> open_raw(const std::string& path) {
  auto file = std::make_unique<MappedFile>(path);
  CHECK(file->bytes().size() % 2 == 0,
        "{} has {} bytes, an odd number, and no .idx beside it: neither raw uint16 tokens nor the output of prepare; "
        "it is "
        "truncated, or its .idx is missing",
        path, file->bytes().size());
  return std::make_unique<PackedTokens<uint16_t>>(std::move(file), 0);
}

}  // namespace megalith
