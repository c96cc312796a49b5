// The model of a tokenizer.json, a BPE over characters or bytes: it turns a piece of a text into ids. Inside data/
// only.
//
// A piece's characters (or, where the pieces are bytes, its bytes) become the tokens of their names. One without a
// token becomes the tokens of its bytes, <0x00> to <0xFF>, with byte_fallback if there are these, or else the unknown
// token, several in a row one if fuse_unk is set; without an unknown token it is left out. Then the earliest merges
// win. With ignore_merges a piece that is a token's name is that token.
//
// Immutable; any number of threads may use it, each with its own Scratch, which refers to it.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/bpe_merger.h"
#include "data/tokenizers/bpe_vocabulary.h"
#include "data/tokenizers/pretoken_cache.h"

namespace megalith {

class BpeModel {
 public:
  // `of_bytes`: pieces are bytes, and tokens are named by GPT-2's characters for these. Errors: another model than a
  // BPE; dropout or affixes of words, by key and value; merges that do not belong to the vocabulary.
  BpeModel(const nlohmann::json& model, bool of_bytes, const std::string& path);

  struct Scratch {
    explicit Scratch(const BpeModel& model) : merger(model.table_) {}
    BpeMerger merger;
    PretokenCache cache;
    std::vector<int32_t> symbols;
  };
  // Appends the ids of a piece, which is not empty.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const;

  const std::unordered_map<std::string, int32_t>& ids() const { return ids_; }  // by name

  // Returns whether no merge joins the character before `at` with the one there, and each is encoded alone whatever its
  // neighbours are. Never so where pieces are bytes.
  bool stays_apart(char32_t before, char32_t after) const;
  // Returns whether a piece may be cut where two characters stay apart.
  bool knows_joints() const { return !joints_.empty() && !ignores_merges_; }

 private:
  void find_symbols();
  void find_joints();
  void find_whole();
  void encode_part(std::string_view part, Scratch& scratch, std::vector<int32_t>& out) const;
  void merge(std::string_view part, Scratch& scratch, std::vector<int32_t>& out) const;
  void add_symbols(std::string_view part, std::vector<int32_t>& symbols) const;

  static size_t joint_of(char32_t before, char32_t after);

  bool of_bytes_, ignores_merges_ = false, fuses_unknown_ = false, falls_back_ = false;
  std::unordered_map<std::string, int32_t> ids_;
  // With ignore_merges, the pieces that are tokens which merges do not make.
  std::unordered_map<std::string, int32_t> whole_;
  size_t longest_whole_ = 0;
  BpeVocabulary vocabulary_;  // merges, and the ids of bytes
  MergeTable table_;
  bool has_all_bytes_ = false;
  int32_t unknown_ = -1;
  std::array<int32_t, 256> fallback_;   // ids of <0x00> to <0xFF>; -1: none
  std::vector<int32_t> character_ids_;  // by code point; -1: none
  std::vector<bool> joints_;            // by joint_of: whether a merge may join the two
};

}  // namespace megalith
