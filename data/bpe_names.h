// What vocab.json and merges.txt have in common with tokenizer.json: tokens and merges by their names, and a vocabulary
// of them. Inside data/ only; bpe_vocabulary.h has the notation.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/bpe_vocabulary.h"

namespace megalith {

// Bytes that stand for themselves in a name.
bool is_printable_byte(int byte);

// Error: not there, or empty.
std::string read_text_file(const std::string& path);
// Error: as well, not JSON, with the place.
nlohmann::json read_json_file(const std::string& path);

class BpeNames {
 public:
  // `ids` is an object of names and ids; `path` is the file of it and `names_of` what messages call the object.
  BpeNames(const nlohmann::json& ids, std::string path, std::string names_of);

  // A token that stands for its own text and is no part of any merge, as <|endoftext|> is. One that has its id already
  // may be named again.
  void add_special(const std::string& content, int64_t id);
  // A token that has its id already is such a one; nothing happens if there is none.
  void make_special(const std::string& content);
  // Which token ends a text, if a file says so. Else it is <|endoftext|>, or without one the only special token.
  void end_is(std::optional<std::string> name) { named_end_ = std::move(name); }
  // The next merge, of tokens that are there: two names with a blank between, or two names. `path`, `place` and
  // `number` say where it stands: "merges.txt, line 3".
  void add_merge(const std::string& both, const std::string& path, const char* place, int64_t number);
  void add_merge(const std::string& left, const std::string& right, const std::string& path, const char* place,
                 int64_t number);

  // Those of a merges.txt: one a line, in their order, under a first line that may say its version.
  void add_merges(std::string_view text, const std::string& path);

  // Checks that ids are 0 .. V-1, each once, and that each byte and the end of a text has one.
  BpeVocabulary without_merges() const;
  const std::vector<BpeVocabulary::Merge>& merges() const { return merges_; }

 private:
  std::string end_name() const;

  std::string path_, names_of_;
  std::optional<std::string> named_end_;
  std::unordered_map<std::string, int64_t> ids_;
  std::unordered_map<std::string, int64_t> specials_;  // by their content
  std::vector<BpeVocabulary::Merge> merges_;
  std::unordered_map<uint64_t, int64_t> number_of_;  // of a merge, by its two ids
};

// Back: an object of names and ids in the order of the ids, and the two names of each merge.
nlohmann::ordered_json token_names(const BpeVocabulary& vocabulary);
std::vector<std::pair<std::string, std::string>> merge_names(const BpeVocabulary& vocabulary);

}  // namespace megalith
