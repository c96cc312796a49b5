#include "data/token_stream.h"

#include <filesystem>
#include <system_error>

#include "data/token_formats.h"
#include "kernels/base/check.h"

namespace megalith {

std::string index_beside(const std::string& path) {
  const std::string index = std::filesystem::path(path).replace_extension(".idx").string();
  std::error_code absent;
  return index != path && std::filesystem::exists(index, absent) ? index : "";
}

TokenStream TokenStream::open(const std::string& path) {
  if (const std::string index = index_beside(path); !index.empty()) return {path, open_megatron(path, index)};
  CHECK(!is_megatron_index(path), "{} is the index of a token file and holds no tokens; name the file itself, {}", path,
        std::filesystem::path(path).replace_extension(".bin").string());
  if (has_llmc_header(path)) return {path, open_llmc(path)};
  return {path, open_raw(path), true};
}

void TokenStream::read(int64_t begin, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  CHECK(begin >= 0 && begin <= size() && count <= size() - begin, "tokens [{}, {}) of {}, which holds {}", begin,
        begin + count, path_, size());
  source_->read(begin, out);
}

int32_t TokenStream::max_token(int64_t begin, int64_t end) const {
  CHECK(0 <= begin && begin < end && end <= size(), "the largest of tokens [{}, {}) of {}, which holds {}", begin, end,
        path_, size());
  return source_->max_token(begin, end);
}

}  // namespace megalith
