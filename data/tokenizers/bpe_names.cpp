#include "data/tokenizers/bpe_names.h"

#include <algorithm>

#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

bool is_printable_byte(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173); }

namespace {

// Maps a byte to its character, as UTF-8, all below U+0800.
class Notation {
 public:
  Notation() {
    int next = 0x100;
    for (int byte = 0; byte < 256; byte++) {
      const int code_point = is_printable_byte(byte) ? byte : next++;
      std::string& s = of_byte_[static_cast<size_t>(byte)];
      if (code_point >= 0x80) s += static_cast<char>(0xc0 | code_point >> 6);
      s += static_cast<char>(code_point < 0x80 ? code_point : 0x80 | (code_point & 0x3f));
      to_byte_[s] = static_cast<char>(byte);
    }
  }

  const std::string& write(char byte) const { return of_byte_[static_cast<uint8_t>(byte)]; }

  std::optional<std::string> read(std::string_view text) const {
    std::string bytes;
    for (size_t i = 0; i < text.size();) {
      const size_t length = static_cast<uint8_t>(text[i]) < 0x80 ? 1 : 2;
      const auto found = to_byte_.find(std::string(text.substr(i, length)));
      if (found == to_byte_.end()) return {};
      bytes += found->second;
      i += length;
    }
    return bytes;
  }

 private:
  std::array<std::string, 256> of_byte_;
  std::unordered_map<std::string, char> to_byte_;
};

const Notation& notation_of_bytes() {
  static const Notation notation;
  return notation;
}

}  // namespace

const std::string& name_of_byte(char byte) { return notation_of_bytes().write(byte); }

std::optional<std::string> bytes_of_name(std::string_view name) { return notation_of_bytes().read(name); }

nlohmann::json read_json_file(const std::string& path) { return parse_json_file(read_file(path), path); }

nlohmann::json parse_json_file(const std::string& text, const std::string& path) {
  CHECK(!text.empty(), "{} is empty (0 bytes); copy it again", path);
  try {
    return parse_json(text);
  } catch (const nlohmann::json::exception& error) {
    FAIL("{} is not JSON: {}; copy it again", path, error.what());
  }
}

BpeNames::BpeNames(const nlohmann::json& ids, std::string path, std::string names_of)
    : path_(std::move(path)), names_of_(std::move(names_of)) {
  CHECK(ids.is_object() && !ids.empty(), "{} is not a JSON object of tokens and ids", path_);
  for (const auto& [name, id] : ids.items()) {
    CHECK(id.is_number_integer(), "{}: the token \"{}\" has the id {}, which is not an integer", path_, name,
          json_text(id));
    CHECK(id >= 0 && id < (1 << 30), "{}: the token \"{}\" has the id {}", path_, name, json_text(id));
    ids_.emplace(name, id.get<int32_t>());
  }
}

void BpeNames::add_special(const std::string& content, int64_t id) {
  if (const auto known = ids_.find(content); known != ids_.end()) {
    CHECK(known->second == id, "{}: the token \"{}\" has the ids {} and {}", path_, content, known->second, id);
    ids_.erase(known);
  }
  const auto [known, is_new] = specials_.emplace(content, id);
  CHECK(is_new, "{}: the token \"{}\" is added twice", path_, content);
}

void BpeNames::add_merge(const std::string& both, const std::string& path, const char* place, int64_t number) {
  const size_t space = both.find(' ');
  CHECK(space != std::string::npos && both.find(' ', space + 1) == std::string::npos,
        "{}, {} {}: \"{}\" is not two tokens with a space between", path, place, number, both);
  add_merge(both.substr(0, space), both.substr(space + 1), path, place, number);
}

void BpeNames::add_merge(const std::string& left, const std::string& right, const std::string& path, const char* place,
                         int64_t number) {
  const auto id_of = [&](const std::string& name) {
    CHECK(name != end_of_text_name && !specials_.contains(name), "{}, {} {}: {} is not a token of text", path, place,
          number, name);
    const auto found = ids_.find(name);
    CHECK(found != ids_.end(), "{}, {} {}: \"{}\" is not in {}; the two do not belong together", path, place, number,
          name, names_of_);
    return found->second;
  };
  const BpeVocabulary::Merge merge{id_of(left), id_of(right), id_of(left + right)};
  const uint64_t key = static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right);
  const auto [first, is_new] = number_of_.emplace(key, number);
  CHECK(is_new, "{}, {} {}: \"{} {}\" is already in {} {}", path, place, number, left, right, place, first->second);
  merges_.push_back(merge);
}

std::vector<std::pair<int64_t, std::string>> lines_of_merges(std::string_view text) {
  std::vector<std::pair<int64_t, std::string>> lines;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line(text.substr(begin, end - begin));
    begin = end + 1;
    number++;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    lines.emplace_back(number, std::move(line));
  }
  return lines;
}

}  // namespace megalith
