#include "trainer/job/handshake.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>

#include "checkpoints/checksum.h"
#include "data/token_stream.h"
#include "kernels/base/files.h"
#include "trainer/job/agreement.h"
#include "trainer/step/text_data.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

constexpr int64_t MiB = 1 << 20, block = 64 << 10, num_blocks = 64;
constexpr size_t shown_keys = 3, shown_hosts = 4, shown_groups = 4;  // a message is for reading

// The files.

void add_part(Checksum& sum, const File& file, int64_t begin, int64_t end) {
  std::vector<char> buffer(static_cast<size_t>(std::min(end - begin, MiB)));
  for (; begin < end; begin += MiB) {
    const int64_t count = std::min(end - begin, MiB);
    file.read(begin, buffer.data(), count);
    sum.add(buffer.data(), count);
  }
}

enum class Read { everything, samples };

std::string content_of(const std::string& path, Read how) {
  try {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    CHECK(!error, "{}", error.message());
    CHECK(fs::is_regular_file(status), "not a file");
    const File file(path, File::Use::read);
    const int64_t size = file.size(), between = size - 2 * MiB;
    Checksum sum;
    if (how == Read::everything || between <= num_blocks * block) {
      add_part(sum, file, 0, size);
    } else {
      add_part(sum, file, 0, MiB);
      for (int64_t i = 0; i < num_blocks; i++) {
        const int64_t begin = MiB + (between - block) * i / (num_blocks - 1);
        add_part(sum, file, begin, begin + block);
      }
      add_part(sum, file, size - MiB, size);
    }
    return fmt::format("{} bytes, hash {}", size, hex(sum.value()));
  } catch (const Error& e) {
    return fmt::format("cannot be read: {}", e.what());
  }
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  return error ? path : whole.string();
}

Fingerprint::File executable() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return {path.string(), content_of("/proc/self/exe", Read::everything)};
}

Fingerprint::File token_file(const std::string& path) {
  if (path.empty()) return {"", "none"};
  Fingerprint::File file{absolute(path), content_of(path, Read::samples)};
  if (const std::string index = index_beside(path); !index.empty())
    file.content += "; .idx " + content_of(index, Read::samples);
  return file;
}

Fingerprint::File tokenizer_folder(const DataConfig& data) {
  std::error_code absent;
  const fs::path folder = tokenizer_path(data);
  if (folder.empty()) return {"", "none"};
  Fingerprint::File all{absolute(folder.string()), ""};
  for (const char* name : {"bytes.txt", "vocab.json", "merges.txt"})
    if (const fs::path file = folder / name; fs::exists(file, absent))
      all.content +=
          fmt::format("{}{} {}", all.content.empty() ? "" : "; ", name, content_of(file.string(), Read::everything));
  if (all.content.empty()) all.content = "none";
  return all;
}

using Keys = std::map<std::string, std::string>;

// The message.

using Ranks = std::vector<size_t>;

// Ranks by what they have: the largest group first, equally large ones by their lowest rank.
template <typename T>
std::vector<Ranks> groups_of(const std::vector<T>& contents) {
  std::vector<Ranks> groups;
  std::map<T, size_t> found;
  for (size_t r = 0; r < contents.size(); r++) {
    const auto [at, is_new] = found.emplace(contents[r], groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].push_back(r);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Ranks& a, const Ranks& b) { return a.size() > b.size(); });
  return groups;
}

// "0-3, 7"
std::string intervals(const Ranks& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) last++;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

// "rank 5 on node1 and ranks 8-15 on node2"
std::string places(const Ranks& group, const std::vector<Fingerprint>& ranks) {
  std::vector<std::string> hosts;
  std::map<std::string, Ranks> on;
  for (size_t r : group) {
    Ranks& here = on[ranks[r].host];
    if (here.empty()) hosts.push_back(ranks[r].host);
    here.push_back(r);
  }
  std::string text;
  for (size_t i = 0; i < std::min(hosts.size(), shown_hosts); i++) {
    const Ranks& here = on[hosts[i]];
    text += fmt::format("{}{} {} on {}", i == 0 ? "" : " and ", here.size() == 1 ? "rank" : "ranks", intervals(here),
                        hosts[i]);
  }
  if (hosts.size() > shown_hosts) text += fmt::format(" and ranks on {} more hosts", hosts.size() - shown_hosts);
  return text;
}

struct Difference {
  std::string odd, usual;
};

Difference of_configs(const Keys& a, const Keys& b) {
  Keys either = a;
  either.insert(b.begin(), b.end());
  Difference result;
  size_t num = 0;
  for (const auto& [key, ignored] : either) {
    const auto in_a = a.find(key), in_b = b.find(key);
    const std::string x = in_a == a.end() ? "(no such key)" : in_a->second;
    const std::string y = in_b == b.end() ? "(no such key)" : in_b->second;
    if (x == y || ++num > shown_keys) continue;
    result.odd += fmt::format("{}{} = {}", num == 1 ? "" : ", ", key, x);
    result.usual += fmt::format("{}{} = {}", num == 1 ? "" : ", ", key, y);
  }
  if (num > shown_keys) result.odd += fmt::format(" and {} more keys that differ", num - shown_keys);
  return result;
}

Difference of_files(const Fingerprint::File& odd, const Fingerprint::File& usual) {
  const auto text = [](const Fingerprint::File& f) {
    return f.path.empty() || f.content == "none" ? f.content : fmt::format("{} ({})", f.path, f.content);
  };
  return {text(odd), text(usual)};
}

// A line for each group of ranks that has another `thing`; nothing when all have the same.
std::string lines(const char* thing, const std::vector<Fingerprint>& ranks, const std::vector<Ranks>& groups,
                  const std::function<Difference(const Fingerprint&, const Fingerprint&)>& compare) {
  if (groups.size() < 2) return "";
  const Ranks& usual = groups[0];
  const bool majority = usual.size() > groups[1].size();
  const std::string others =
      majority ? fmt::format("{} of the {} ranks", usual.size(), ranks.size()) : places(usual, ranks);
  const auto have = [](size_t num) { return num == 1 ? "has" : "have"; };
  std::string text;
  for (size_t g = 1; g < std::min(groups.size(), 1 + shown_groups); g++) {
    const Difference d = compare(ranks[groups[g][0]], ranks[usual[0]]);
    text += fmt::format("\n  {}: {} {} {}; {} {} {}", thing, places(groups[g], ranks), have(groups[g].size()), d.odd,
                        others, have(usual.size()), d.usual);
  }
  if (groups.size() > 1 + shown_groups)
    text += fmt::format("\n  {}: there are {} different ones in all", thing, groups.size());
  return text;
}

}  // namespace

Fingerprint fingerprint_of(const Config& config) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return {
      host,
      key_values(config),
      {executable(), token_file(config.data.train), token_file(config.data.validation), tokenizer_folder(config.data)}};
}

std::string disagreement(const std::vector<Fingerprint>& ranks) {
  std::string same, differences;
  const auto compare = [&](const char* thing, const char* remedy, const auto& content, const auto& difference) {
    std::vector<std::decay_t<decltype(content(ranks[0]))>> contents;
    for (const Fingerprint& rank : ranks) contents.push_back(content(rank));
    const std::string found = lines(thing, ranks, groups_of(contents), difference);
    if (found.empty()) return;
    same += fmt::format("{}the same {}", same.empty() ? "" : ", ", remedy);
    differences += found;
  };
  using F = const Fingerprint&;
  compare(
      "config", "config file and overrides", [](F rank) { return rank.config; },
      [](F odd, F usual) { return of_configs(odd.config, usual.config); });
  for (size_t i = 0; i < Fingerprint::file_names.size(); i++)
    compare(
        Fingerprint::file_names[i], Fingerprint::file_names[i], [i](F rank) { return rank.files[i].content; },
        [i](F odd, F usual) { return of_files(odd.files[i], usual.files[i]); });
  if (same.empty()) return "";
  return fmt::format("the ranks do not agree on what to run; nothing was begun. Give every rank {}:{}", same,
                     differences);
}

// Fields behind one another, each ended by a zero byte, which none of them holds.
std::string to_text(const Fingerprint& fingerprint) {
  std::string text;
  const auto add = [&](const std::string& field) { text.append(field).push_back('\0'); };
  add(fingerprint.host);
  for (const Fingerprint::File& file : fingerprint.files) {
    add(file.path);
    add(file.content);
  }
  for (const auto& [key, value] : fingerprint.config) {
    add(key);
    add(value);
  }
  return text;
}

Fingerprint fingerprint_from(const std::string& text) {
  size_t begin = 0;
  const auto next = [&] {
    const size_t end = std::min(text.find('\0', begin), text.size());
    const std::string field = text.substr(begin, end - begin);
    begin = std::min(end + 1, text.size());
    return field;
  };
  Fingerprint result;
  result.host = next();
  for (Fingerprint::File& file : result.files) {
    file.path = next();
    file.content = next();
  }
  while (begin < text.size()) {
    const std::string key = next();
    result.config[key] = next();
  }
  return result;
}

void shake_hands(const Config& config, const Session& session) {
  if (session.size() == 1) return;
  Fingerprint mine;
  together(session, [&] { mine = fingerprint_of(config); });
  std::vector<Fingerprint> ranks;
  for (const std::string& text : session.all_gather_text(to_text(mine))) ranks.push_back(fingerprint_from(text));
  const std::string found = disagreement(ranks);
  if (!found.empty()) throw JobError(__FILE__, __LINE__, found);
}

}  // namespace megalith
