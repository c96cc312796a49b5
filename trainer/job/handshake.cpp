#include "trainer/job/handshake.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoints/checksum.h"
#include "data/token_stream.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "trainer/job/agreement.h"
#include "trainer/session/open_session.h"
#include "trainer/step/text_data.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  constexpr int64_t block = 256 << 10, gaps = 255;
  try {
    const File file(path, File::Use::read);
    const int64_t size = file.size(), stride = std::max(block, (size - block + gaps - 1) / gaps);
    std::vector<char> bytes(block);
    Checksum sum;
    for (int64_t begin = 0; begin < size; begin += stride) {
      const int64_t count = std::min(block, size - begin);
      file.read(begin, bytes.data(), count);
      sum.add(bytes.data(), count);
    }
    return fmt::format("{} bytes, hash {}", size, hex(sum.value()));
  } catch (const Error& e) {
    return e.what();
  }
}

std::array<std::string, 2> content_of(const fs::path& place, const std::vector<fs::path>& files) {
  std::string content;
  for (const fs::path& file : files) content += (content.empty() ? "" : ", ") + content_of(file);
  std::error_code error;
  const fs::path whole = fs::absolute(place, error);
  return {content.empty() ? "none" : content, (error ? place : whole).string()};
}

}  // namespace

Fingerprint fingerprint_of(const Config& config) {
  std::error_code error;
  Fingerprint all;
  for (const auto& [key, value] : key_values(config)) all[key] = {value, ""};
  all["executable"] = content_of(fs::read_symlink("/proc/self/exe", error), {"/proc/self/exe"});
  for (const auto& [key, path] :
       {std::pair{"data.train", config.data.train}, {"data.validation", config.data.validation}}) {
    std::vector<fs::path> files;
    if (!path.empty()) files.emplace_back(path);
    if (const std::string index = index_beside(path); !path.empty() && !index.empty()) files.emplace_back(index);
    all[fmt::format("the file of {}", key)] = content_of(path, files);
  }
  const std::string folder = tokenizer_path(config.data);
  std::vector<fs::path> files;
  for (const std::string& file : folder.empty() ? std::vector<std::string>{} : tokenizer_files(folder))
    files.emplace_back(file);
  all["the tokenizer"] = content_of(folder, files);
  return all;
}

std::string differences(const Fingerprint& mine, const Fingerprint& of_rank_0) {
  constexpr int shown = 8;  // so that a message stays readable
  Fingerprint names = mine;
  names.insert(of_rank_0.begin(), of_rank_0.end());
  const auto text = [](const Fingerprint& of, const std::string& name) {
    const auto found = of.find(name);
    if (found == of.end()) return std::string("unknown");
    const auto& [content, place] = found->second;
    return place.empty() ? content : fmt::format("{} ({})", place, content);
  };
  std::string lines;
  int num = 0;
  for (const auto& [name, ignored] : names) {
    const auto a = mine.find(name), b = of_rank_0.find(name);
    if (a != mine.end() && b != of_rank_0.end() && a->second[0] == b->second[0]) continue;
    if (num++ < shown) lines += fmt::format("\n  {}: {}; on rank 0: {}", name, text(mine, name), text(of_rank_0, name));
  }
  return num > shown ? fmt::format("{}\n  and {} more", lines, num - shown) : lines;
}

void shake_hands(const Config& config, const Session& session, const Fingerprint& more) {
  if (session.size() == 1) return together(session, [&] { check_launch(launch_of_this_process(), session); });
  Fingerprint mine = fingerprint_of(config);
  mine.insert(more.begin(), more.end());
  const std::string of_rank_0 = session.broadcast_text(to_cbor(mine));
  together(session, [&] {
    const std::string found = differences(mine, from_cbor(of_rank_0).get<Fingerprint>());
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    CHECK(found.empty(),
          "was started with other things than rank 0; give every rank the same program, config, overrides and files. "
          "On {}:{}",
          host, found);
  });
}

}  // namespace megalith
