#include "data/bpe_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <unordered_map>

#include "kernels/base/files.h"
#include "kernels/base/json.h"

namespace megalith {

namespace {

bool is_printable(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173); }

// The notation of one byte, as UTF-8. All of it lies below U+0800.
class Notation {
 public:
  Notation() {
    int next = 0x100;
    for (int byte = 0; byte < 256; byte++) {
      const int code_point = is_printable(byte) ? byte : next++;
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

  std::string read(std::string_view text, const std::string& path) const {
    std::string bytes;
    for (size_t i = 0; i < text.size();) {
      const size_t length = static_cast<uint8_t>(text[i]) < 0x80 ? 1 : 2;
      const auto found = to_byte_.find(std::string(text.substr(i, length)));
      CHECK(found != to_byte_.end(),
            "{}: the token \"{}\" holds a character that stands for no byte; is it the vocabulary of a byte-level BPE?",
            path, text);
      bytes += found->second;
      i += length;
    }
    return bytes;
  }

 private:
  std::array<std::string, 256> of_byte_;
  std::unordered_map<std::string, char> to_byte_;
};

std::string read_text(const std::string& path) { return std::string(MappedFile(path).text()); }

using Ids = std::unordered_map<std::string, int32_t>;

// Names to ids, as the file has them.
Ids read_names(const std::string& path) {
  const nlohmann::json json = [&] {
    try {
      return parse_json(read_text(path));
    } catch (const nlohmann::json::exception& error) {
      FAIL("{} is not JSON: {}; copy it again", path, error.what());
    }
  }();
  CHECK(json.is_object() && !json.empty(), "{} is not a JSON object of tokens and ids", path);
  const auto size = static_cast<int64_t>(json.size());
  std::vector<const std::string*> holder(json.size());
  Ids ids;
  for (const auto& [name, value] : json.items()) {
    CHECK(value.is_number_integer(), "{}: the token \"{}\" has the id {}, which is not an integer", path, name,
          json_text(value));
    const auto id = value.get<int64_t>();
    CHECK(id >= 0 && id < size, "{}: the token \"{}\" has the id {}, but {} tokens need the ids 0 to {}", path, name,
          id, size, size - 1);
    const auto [entry, is_new] = ids.emplace(name, static_cast<int32_t>(id));
    const std::string*& held = holder[static_cast<size_t>(id)];
    CHECK(held == nullptr, "{}: the tokens \"{}\" and \"{}\" have the same id {}", path, *held, name, id);
    held = &entry->first;
  }
  return ids;
}

std::vector<BpeVocabulary::Merge> read_merges(const std::string& path, const Ids& ids) {
  const std::string text = read_text(path);
  std::vector<BpeVocabulary::Merge> merges;
  std::unordered_map<uint64_t, int64_t> line_of;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    number++;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    CHECK(space != std::string::npos && line.find(' ', space + 1) == std::string::npos,
          "{}, line {}: \"{}\" is not two tokens with a space between", path, number, line);
    const std::string left = line.substr(0, space), right = line.substr(space + 1);
    for (const std::string& name : {left, right, left + right}) {
      CHECK(name != end_of_text_name, "{}, line {}: {} is not a token of text", path, number, name);
      CHECK(ids.contains(name), "{}, line {}: \"{}\" is not in vocab.json; the two files do not belong together", path,
            number, name);
    }
    const BpeVocabulary::Merge merge{ids.at(left), ids.at(right), ids.at(left + right)};
    const uint64_t key = static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right);
    const auto [first, is_new] = line_of.emplace(key, number);
    CHECK(is_new, "{}, line {}: \"{}\" stands in line {} already", path, number, line, first->second);
    merges.push_back(merge);
  }
  return merges;
}

}  // namespace

std::array<uint8_t, 256> bytes_in_gpt2_order() {
  std::array<uint8_t, 256> order;
  for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<uint8_t>(i);
  std::stable_partition(order.begin(), order.end(), is_printable);
  return order;
}

BpeVocabulary read_bpe(const std::string& folder) {
  const std::string vocab_path = folder + "/vocab.json", merges_path = folder + "/merges.txt";
  const Notation notation;
  const Ids ids = read_names(vocab_path);
  BpeVocabulary vocabulary;
  vocabulary.tokens.resize(ids.size());
  for (const auto& [name, id] : ids) {
    if (name == end_of_text_name)
      vocabulary.end_of_text = id;
    else
      vocabulary.tokens[static_cast<size_t>(id)] = notation.read(name, vocab_path);
  }
  CHECK(vocabulary.end_of_text >= 0, "{} has no token {}; add it, so that texts can be separated", vocab_path,
        end_of_text_name);
  for (int byte = 0; byte < 256; byte++) {
    const auto found = ids.find(notation.write(std::string(1, static_cast<char>(byte))));
    CHECK(found != ids.end(), "{} has no token for the byte {}; is it the vocabulary of a byte-level BPE?", vocab_path,
          byte);
    vocabulary.byte_ids[static_cast<size_t>(byte)] = found->second;
  }
  vocabulary.merges = read_merges(merges_path, ids);
  return vocabulary;
}

void write_bpe(const BpeVocabulary& vocabulary, const std::string& folder) {
  const Notation notation;
  const auto name = [&](int32_t id) {
    return id == vocabulary.end_of_text ? std::string(end_of_text_name)
                                        : notation.write(vocabulary.tokens[static_cast<size_t>(id)]);
  };
  nlohmann::ordered_json json = nlohmann::ordered_json::object();  // appended to directly: its lookups are linear
  std::string merges = "#version: 0.2\n";
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.tokens.size()); id++)
    json.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(name(id), id);
  for (const BpeVocabulary::Merge& merge : vocabulary.merges)
    merges += name(merge.left) + " " + name(merge.right) + "\n";
  write_file(folder + "/vocab.json", json_text(json) + "\n");
  write_file(folder + "/merges.txt", merges);
}

std::string content_of(const BpeVocabulary& vocabulary) {
  std::string content =
      fmt::format("BPE of {} tokens, {} ends a text\n", vocabulary.tokens.size(), vocabulary.end_of_text);
  for (const std::string& token : vocabulary.tokens) content += fmt::format("{} {}\n", token.size(), token);
  for (const BpeVocabulary::Merge& merge : vocabulary.merges)
    content += fmt::format("{} {} {}\n", merge.left, merge.right, merge.result);
  return content;
}

}  // namespace megalith
