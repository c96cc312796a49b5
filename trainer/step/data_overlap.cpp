#include "trainer/step/data_overlap.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "kernels/system/files.h"

namespace megalith {

namespace {

bool same_bytes(const std::string& a, const std::string& b) {
  constexpr int64_t part = int64_t{1} << 20;
  const File first(a, File::Use::read), second(b, File::Use::read);
  const int64_t bytes = first.size();
  if (second.size() != bytes) return false;
  std::vector<char> ours(static_cast<size_t>(std::min(part, bytes))), theirs(ours.size());
  for (int64_t at = 0; at < bytes; at += part) {
    const int64_t count = std::min(part, bytes - at);
    first.read(at, ours.data(), count);
    second.read(at, theirs.data(), count);
    if (std::memcmp(ours.data(), theirs.data(), static_cast<size_t>(count)) != 0) return false;
  }
  return true;
}

enum class Same : uint8_t { no, file, bytes };

Same compare(const std::string& file, const std::string& validation) {
  std::error_code gone;
  if (std::filesystem::equivalent(file, validation, gone)) return Same::file;
  return same_bytes(file, validation) ? Same::bytes : Same::no;
}

}  // namespace

bool trains_on_validation(const Config& config, const Loader& train, const ValidationSet& set) {
  for (const TokenStream& stream : train.streams())
    for (const std::string& file : stream.files())
      for (const TokenStream& other : set.loader.streams())
        for (const std::string& validation : other.files()) {
          const Same same = compare(file, validation);
          if (same == Same::no) continue;
          CHECK(config.data.allow_overlap,
                "data.train contains {}, {} of data.validation = {}, so validation data would be trained on; name only "
                "the files for training, or the folder that `megalith prepare` wrote, which means them. To overfit on "
                "purpose, set data.allow_overlap = true",
                file, same == Same::file ? "a file" : "with the same bytes as " + validation, other.path());
          return true;
        }
  return false;
}

std::vector<std::string> files_trained_on_twice(const Loader& train) {
  std::vector<std::string> said;
  std::map<std::pair<int64_t, std::string>, std::vector<std::string>> alike;  // by size and first bytes
  for (const TokenStream& stream : train.streams())
    for (const std::string& file : stream.files()) {
      const File bytes(file, File::Use::read);
      std::string first(static_cast<size_t>(std::min<int64_t>(4096, bytes.size())), '\0');
      bytes.read(0, first.data(), std::ssize(first));
      std::vector<std::string>& others = alike[{bytes.size(), first}];
      for (const std::string& other : others) {
        const Same same = compare(file, other);
        if (same == Same::no) continue;
        said.push_back(
            fmt::format("data.train has {} and {}, {}: their tokens come twice as often as it seems; name it once, "
                        "with twice the weight if that is intended",
                        other, file, same == Same::file ? "which are one file" : "which have the same bytes"));
        break;
      }
      others.push_back(file);
    }
  return said;
}

}  // namespace megalith
