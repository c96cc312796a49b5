// Tokens and merges by name, as in vocab.json, merges.txt and tokenizer.json. Inside data/ only; bpe_vocabulary.h
// describes the notation.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizers/bpe_vocabulary.h"

namespace megalith {

// Returns whether a byte's name is the byte itself.
bool is_printable_byte(int byte);

// Returns the character that names a byte, as UTF-8.
const std::string& name_of_byte(char byte);
// Returns the bytes of a name; nullopt if it has a character that is not the name of a byte.
std::optional<std::string> bytes_of_name(std::string_view name);

// Error: the file is absent, empty, or not JSON, with the place.
nlohmann::json read_json_file(const std::string& path);
// As above, for a file that was read already.
nlohmann::json parse_json_file(const std::string& text, const std::string& path);

// Returns the merges of a merges.txt, one a line after an optional first line with its version, each with its line
// number.
std::vector<std::pair<int64_t, std::string>> lines_of_merges(std::string_view text);

class BpeNames {
 public:
  // `ids` is an object of names and ids, from the file `path`; `names_of` is its name in messages.
  BpeNames(const nlohmann::json& ids, std::string path, std::string names_of);

  // Adds a token that stands for its own text and is not part of any merge, such as <|endoftext|>. Repeating it is
  // allowed.
  void add_special(const std::string& content, int64_t id);
  // Adds the next merge, of existing tokens: two names joined by a blank, or two names. `path`, `place` and `number`
  // name it in messages: "merges.txt, line 3".
  void add_merge(const std::string& both, const std::string& path, const char* place, int64_t number);
  void add_merge(const std::string& left, const std::string& right, const std::string& path, const char* place,
                 int64_t number);

  const std::unordered_map<std::string, int32_t>& ids() const { return ids_; }  // without special tokens
  const std::vector<BpeVocabulary::Merge>& merges() const { return merges_; }

 private:
  std::string path_, names_of_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<std::string, int64_t> specials_;  // by their text
  std::vector<BpeVocabulary::Merge> merges_;
  std::unordered_map<uint64_t, int64_t> number_of_;  // by the two ids of the merge
};

}  // namespace megalith
