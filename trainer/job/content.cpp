#include "trainer/job/content.h"

#include <algorithm>

#include "checkpoints/checksum.h"
#include "data/samples/sources.h"
#include "data/samples/token_stream.h"
#include "kernels/system/files.h"

namespace megalith {

namespace {

std::string content_of_file(const std::string& path, int64_t blocks, int64_t& bytes) {
  constexpr int64_t block = 256 << 10;
  try {
    const File file(path, File::Use::read);
    const int64_t size = file.size(), gaps = blocks - 1, stride = std::max(block, (size - block + gaps - 1) / gaps);
    std::vector<char> buffer(block);
    Checksum sum;
    for (int64_t begin = 0; begin < size; begin += stride) {
      const int64_t count = std::min(block, size - begin);
      file.read(begin, buffer.data(), count);
      sum.add(buffer.data(), count);
    }
    bytes += size;
    return fmt::format("{} bytes, hash {}", size, hex(sum.value()));
  } catch (const Error& e) {
    return e.what();
  }
}

std::string content(const std::vector<std::string>& files, int64_t blocks) {
  constexpr size_t listed = 4;
  std::string all;
  int64_t bytes = 0;
  for (const std::string& file : files) all += (all.empty() ? "" : ", ") + content_of_file(file, blocks, bytes);
  if (files.size() <= listed) return all;
  return fmt::format("{} files, {} bytes, hash {}", files.size(), bytes,
                     hex(checksum_of(all.data(), static_cast<int64_t>(all.size()))));
}

int64_t blocks_for(size_t files) {
  return std::max<int64_t>(2, 256 / std::max<int64_t>(1, static_cast<int64_t>(files)));
}

}  // namespace

std::string content_of(const std::vector<std::string>& files) { return content(files, blocks_for(1)); }

std::string content_of_source(const std::string& name) {
  std::vector<std::string> tokens = matches_of(name), files;
  if (tokens.empty()) tokens = {name};
  for (const std::string& path : tokens) {
    files.push_back(path);
    for (const std::string& sibling : {index_path_of(path), mask_path_of(path)})
      if (!sibling.empty()) files.push_back(sibling);
  }
  return content(files, blocks_for(tokens.size()));
}

std::string content_of_sources(const Loader& data) {
  std::string all;
  for (const TokenStream& stream : data.streams()) all += (all.empty() ? "" : ", ") + content_of_source(stream.path());
  return all;
}

}  // namespace megalith
