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

  std::string write(std::string_view bytes) const {
    std::string text;
    for (const char byte : bytes) text += of_byte_[static_cast<uint8_t>(byte)];
    return text;
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

  std::string read(std::string_view text, const std::string& path) const {
    std::optional<std::string> bytes = read(text);
    CHECK(bytes,
          "{}: the token \"{}\" holds a character that stands for no byte; is it the vocabulary of a byte-level BPE?",
          path, text);
    return std::move(*bytes);
  }

 private:
  std::array<std::string, 256> of_byte_;
  std::unordered_map<std::string, char> to_byte_;
};

std::string name_of(const BpeVocabulary& vocabulary, int32_t id, const Notation& notation) {
  if (id == vocabulary.end_of_text) return vocabulary.end_name;
  const std::string& token = vocabulary.tokens[static_cast<size_t>(id)];
  return std::binary_search(vocabulary.specials.begin(), vocabulary.specials.end(), id) ? token : notation.write(token);
}

const Notation& notation_of_bytes() {
  static const Notation notation;
  return notation;
}

}  // namespace

const std::string& name_of_byte(char byte) { return notation_of_bytes().write(byte); }

std::optional<std::string> bytes_of_name(std::string_view name) { return notation_of_bytes().read(name); }

std::string read_text_file(const std::string& path) {
  std::string text = read_file(path);
  CHECK(!text.empty(), "{} is empty (0 bytes); copy it again", path);
  return text;
}

nlohmann::json read_json_file(const std::string& path) {
  try {
    return parse_json(read_text_file(path));
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
    ids_.emplace(name, id.get<int64_t>());
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

// A single character may be a byte's token, and stays one.
void BpeNames::make_special(const std::string& content) {
  if (content.size() <= 2) return;
  if (const auto known = ids_.find(content); known != ids_.end()) add_special(content, known->second);
}

std::string BpeNames::end_name() const {
  const auto has = [&](const std::string& name) { return ids_.contains(name) || specials_.contains(name); };
  if (named_end_) {
    CHECK(has(*named_end_), "{} has no token {}, the eos_token of the files beside it; add it, or name another", path_,
          *named_end_);
    return *named_end_;
  }
  std::string name(end_of_text_name);
  if (!has(name) && specials_.size() == 1) name = specials_.begin()->first;
  CHECK(has(name), "{} has no token {}, and {}; name the one that ends texts as \"eos_token\" in tokenizer_config.json",
        path_, name,
        specials_.empty() ? "no other special one" : fmt::format("{} other special ones", specials_.size()));
  return name;
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
    return static_cast<int32_t>(found->second);
  };
  const BpeVocabulary::Merge merge{id_of(left), id_of(right), id_of(left + right)};
  const uint64_t key = static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right);
  const auto [first, is_new] = number_of_.emplace(key, number);
  CHECK(is_new, "{}, {} {}: \"{} {}\" stands in {} {} already", path, place, number, left, right, place, first->second);
  merges_.push_back(merge);
}

void BpeNames::add_merges(std::string_view text, const std::string& path) {
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line(text.substr(begin, end - begin));
    begin = end + 1;
    number++;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    add_merge(line, path, "line", number);
  }
}

BpeVocabulary BpeNames::without_merges() const {
  const auto size = static_cast<int64_t>(ids_.size() + specials_.size());
  std::vector<const std::string*> holder(static_cast<size_t>(size));
  const auto take = [&](const std::string& name, int64_t id) {
    CHECK(id >= 0 && id < size, "{}: the token \"{}\" has the id {}, but {} tokens need the ids 0 to {}", path_, name,
          id, size, size - 1);
    const std::string*& held = holder[static_cast<size_t>(id)];
    CHECK(held == nullptr, "{}: the tokens \"{}\" and \"{}\" have the same id {}", path_, *held, name, id);
    held = &name;
  };
  for (const auto* named : {&ids_, &specials_})
    for (const auto& [name, id] : *named) take(name, id);

  const Notation notation;
  BpeVocabulary vocabulary;
  vocabulary.end_name = end_name();
  vocabulary.tokens.resize(static_cast<size_t>(size));
  for (const auto& [name, id] : specials_) {
    vocabulary.tokens[static_cast<size_t>(id)] = name;
    if (name != vocabulary.end_name) vocabulary.specials.push_back(static_cast<int32_t>(id));
  }
  std::sort(vocabulary.specials.begin(), vocabulary.specials.end());
  for (const auto& [name, id] : ids_)
    if (name != vocabulary.end_name) vocabulary.tokens[static_cast<size_t>(id)] = notation.read(name, path_);
  for (const auto* named : {&ids_, &specials_})
    if (const auto found = named->find(vocabulary.end_name); found != named->end())
      vocabulary.end_of_text = static_cast<int32_t>(found->second);
  vocabulary.tokens[static_cast<size_t>(vocabulary.end_of_text)].clear();
  for (int byte = 0; byte < 256; byte++) {
    const auto found = ids_.find(notation.write(std::string(1, static_cast<char>(byte))));
    CHECK(found != ids_.end(), "{} has no token for the byte {}; is it the vocabulary of a byte-level BPE?", path_,
          byte);
    vocabulary.byte_ids[static_cast<size_t>(byte)] = static_cast<int32_t>(found->second);
  }
  return vocabulary;
}

nlohmann::ordered_json token_names(const BpeVocabulary& vocabulary) {
  const Notation notation;
  nlohmann::ordered_json names = nlohmann::ordered_json::object();
  auto& entries =
      names.get_ref<nlohmann::ordered_json::object_t&>();  // appended to directly, since its lookups are linear
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.tokens.size()); id++)
    entries.emplace_back(name_of(vocabulary, id, notation), id);
  return names;
}

std::vector<std::pair<std::string, std::string>> merge_names(const BpeVocabulary& vocabulary) {
  const Notation notation;
  std::vector<std::pair<std::string, std::string>> names;
  for (const BpeVocabulary::Merge& merge : vocabulary.merges)
    names.emplace_back(name_of(vocabulary, merge.left, notation), name_of(vocabulary, merge.right, notation));
  return names;
}

}  // namespace megalith
