#include "data/samples/sources.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <numeric>

#include "kernels/system/files.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& path) {
  std::error_code absent;
  return fs::exists(path, absent) && !fs::is_directory(path, absent);
}

// Returns the matching files without their .idx and .mask files.
std::vector<std::string> token_files(const std::string& pattern) {
  std::vector<std::string> paths = paths_matching(pattern);
  std::erase_if(paths, [](const std::string& path) {
    return !is_file(path) || path.ends_with(".idx") || path.ends_with(".mask");
  });
  return paths;
}

std::vector<std::string> shards_of(const std::string& prefix) {
  return token_files(as_pattern(prefix) + "-[0-9][0-9][0-9][0-9][0-9].bin");
}

// If `name` is a folder of prepare, returns the prefix of its tokens for this key; otherwise returns it unchanged.
std::string part_meant(const std::string& key, const std::string& name) {
  std::error_code absent;
  if (!fs::is_directory(name, absent) || (key != "data.train" && key != "data.validation")) return name;
  const std::string prefix = (fs::path(name) / (key == "data.train" ? "train" : "validation")).string();
  return is_file(prefix + ".bin") || !shards_of(prefix).empty() ? prefix : name;
}

// Returns a decimal number in units of 1e-9; 0 if it is not a number, or too large or too fine.
int64_t billionths(const std::string& text) {
  const size_t point = std::min(text.find('.'), text.size());
  const std::string whole = text.substr(0, point), part = point < text.size() ? text.substr(point + 1) : "";
  const auto digits = [](const std::string& s) { return s.find_first_not_of("0123456789") == std::string::npos; };
  if (!digits(whole) || !digits(part) || whole.size() > 9 || part.size() > 9 || whole.size() + part.size() == 0)
    return 0;
  return std::stoll("0" + whole) * 1'000'000'000 + std::stoll("0" + part + std::string(9 - part.size(), '0'));
}

}  // namespace

std::vector<ValidationSource> parse_validation(const std::string& text) {
  if (text.empty()) return {};
  if (text.find('\n') == std::string::npos) return {{"", text}};
  std::vector<ValidationSource> sets;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t sign = line.find('=');
    const std::string name = line.substr(0, std::min(sign, line.size()));
    const bool good = std::ranges::all_of(
        name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
    CHECK(sign != std::string::npos && !name.empty() && good && sign + 1 < line.size(),
          "data.validation: \"{}\" is not NAME=SOURCE; in a list give each set a name of letters and digits, as in "
          "[\"wiki=wiki.bin\", \"code=code.bin\"]",
          line);
    for (const ValidationSource& set : sets)
      CHECK(set.name != name, "data.validation: two sets are called {}; give each another name", name);
    sets.push_back({name, line.substr(sign + 1)});
  }
  return sets;
}

std::vector<std::string> names_of_sources(const std::string& key, const std::string& text) {
  std::vector<std::string> names;
  if (key == "data.validation")
    for (const ValidationSource& set : parse_validation(text)) names.push_back(set.source);
  else if (!text.empty())
    for (const DataSource& source : parse_sources(key, text)) names.push_back(source.name);
  return names;
}

std::vector<DataSource> parse_sources(const std::string& key, const std::string& text) {
  if (text.find('\n') == std::string::npos) return {{text}};
  std::vector<DataSource> sources;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t space = line.find_last_of(" \t");
    const int64_t weight = space == std::string::npos ? 0 : billionths(line.substr(space + 1));
    CHECK(
        weight > 0,
        "{}: \"{}\" in the list has no weight, a positive number after the name with at most nine digits on each side "
        "of the point; write \"NAME 0.3\"",
        key, line);
    const size_t last = line.find_last_not_of(" \t", space), first = line.find_first_not_of(" \t");
    CHECK(last != std::string::npos && first <= last, "{}: \"{}\" in the list has no source before its weight", key,
          line);
    const std::string name = line.substr(first, last - first + 1);
    for (const DataSource& other : sources)
      CHECK(other.name != name, "{}: the list names {} twice; add the weights up", key, name);
    sources.push_back({name, weight});
  }
  int64_t divisor = 0;
  for (const DataSource& source : sources) divisor = std::gcd(divisor, source.share);
  for (DataSource& source : sources) source.share /= std::max<int64_t>(divisor, 1);
  return sources;
}

namespace {
std::vector<std::string> files_there(const std::string& name) {
  if (name.empty()) return {};
  if (is_file(name)) return {name};
  if (is_pattern(name)) return token_files(name);
  if (is_file(name + ".bin")) return {name + ".bin"};
  return shards_of(name);
}
}  // namespace

LeftOut left_out_of(const std::string& name) {
  LeftOut left_out;
  if (name.empty() || is_file(name) || !is_pattern(name)) return left_out;
  for (const std::string& path : paths_matching(name, &left_out)) {
    std::error_code absent;
    if (fs::is_directory(path, absent))
      left_out["folder"]++;
    else if (!is_file(path))
      left_out["link without target"]++;
    else if (path.ends_with(".idx") && !is_file(fs::path(path).replace_extension(".bin").string()))
      left_out["index without tokens"]++;
  }
  return left_out;
}

std::vector<std::string> matches_of(const std::string& name, const std::string& key) {
  return files_there(part_meant(key, name));
}

std::vector<std::string> files_of(const std::string& key, const std::string& source) {
  check_is_path(source);
  const std::string name = part_meant(key, source);
  const std::vector<std::string> found = files_there(name);
  std::error_code absent;
  if (found.empty() && fs::is_directory(name, absent)) {
    // A folder of prepare also holds the validation set, which a pattern would include.
    const fs::path prepared = fs::path(name) / (key == "data.train" ? "train.bin" : "validation.bin");
    if (fs::exists(prepared, absent))
      FAIL("{} = {} is a folder; name the file in it, {}", key, name, prepared.string());
    FAIL("{} = {} is a folder; name its files, as in {}", key, name, (fs::path(name) / "*.bin").string());
  }
  CHECK(!found.empty(),
        "{} = {}: No such file or directory, nor {}.bin or {}-00000.bin, and as a pattern it matches no file; check "
        "the path, or make it from texts with `megalith prepare`",
        key, name, name, name);
  if (found.front() == name || found.front() == name + ".bin") {
    const std::vector<std::string> shards = found.front() == name ? std::vector<std::string>{} : shards_of(name);
    CHECK(shards.empty(), "{} = {} may be {}.bin or {} shards, {} and on; name the file, or the shards as {}-*.bin",
          key, name, name, shards.size(), shards.front(), name);
    return found;
  }
  if (!is_pattern(name))
    for (size_t i = 0; i < found.size(); i++)
      CHECK(found[i] == fmt::format("{}-{:05}.bin", name, i),
            "{} = {}: after {} shards comes {}; {}-{:05}.bin is missing: copy or prepare it again", key, name, i,
            found[i], name, i);
  return found;
}

}  // namespace megalith
