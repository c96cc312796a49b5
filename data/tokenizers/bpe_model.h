// The model of a tokenizer.json, a BPE over characters or bytes: turns a piece of a text into ids. Inside data/ only.
//
// Each character of a piece (or each byte, if pieces are bytes) becomes the token of its name. A character without a
// token becomes the tokens of its bytes, <0x00> to <0xFF>, with byte_fallback and if these exist. Otherwise it becomes
// the unknown token; with fuse_unk several in a row become one. Without an unknown token it is left out. Then the
// earliest merges win. With ignore_merges a piece that is a token's name is that token. A piece of bytes of any length
// is encoded in little memory.
//
// Immutable; any number of threads may use it, each with its own Scratch, which refers to it.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/bpe_merger.h"
#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/bpe_vocabulary.h"
#include "data/tokenizers/pretoken_cache.h"
#include "data/tokenizers/run_cut.h"

namespace megalith {

class BpeModel {
 public:
  // `of_bytes`: pieces are bytes, and tokens are named by GPT-2's characters for bytes. Errors: a model other than BPE;
  // dropout or affixes of words, by key and value; merges that do not fit the vocabulary.
  BpeModel(const nlohmann::json& model, bool of_bytes, const std::string& path);
  BpeModel(BpeModel&&) = delete;

  struct Scratch {
    explicit Scratch(const BpeModel& model) : merger(model.table_) {}
    BpeMerger merger;
    PretokenCache cache;
    std::vector<int32_t> symbols;
  };
  // Appends the ids of a piece, which must not be empty.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const {
    if (of_bytes_) return encode_part(piece, scratch, out);
    encode_characters(piece, scratch, out);
  }

  const std::unordered_map<std::string, int32_t>& ids() const { return ids_; }  // by name
  const std::vector<BpeVocabulary::Merge>& merges() const { return vocabulary_.merges; }
  // With ignore_merges: the pieces that are tokens but are not made by merges.
  const std::unordered_map<std::string, int32_t>& whole_pieces() const { return whole_; }
  // If pieces are bytes: returns a byte without a token, or nullopt.
  std::optional<int> byte_without_token() const;

  // Returns whether no merge joins these two neighbouring characters, and both are encoded alike whatever their
  // neighbours are. False if pieces are bytes.
  bool stays_apart(char32_t before, char32_t after) const;
  // Returns whether a piece may be cut between two characters for which stays_apart() is true.
  bool knows_joints() const { return !joints_.empty() && !ignores_merges_; }

  // Returns where a piece of bytes that begins with `run` may be cut, as RunCut::find; 0: no place found.
  size_t cut_in(std::string_view run) const;

 private:
  BpeModel(const BpeNames& names, const nlohmann::json& model, bool of_bytes, const std::string& path);
  void find_symbols();
  void find_joints();
  void find_whole();
  void encode_characters(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const;
  void encode_part(std::string_view part, Scratch& scratch, std::vector<int32_t>& out) const {
    if (part.size() > PretokenCache::longest_pretoken) return encode_long(part, scratch, out);
    const PretokenCache::Key key = PretokenCache::key_of(part);
    if (const auto known = scratch.cache.find(key); !known.empty()) {
      out.insert(out.end(), known.begin(), known.end());
      return;
    }
    const size_t before = out.size();
    merge(part, scratch, out);
    if (out.size() > before) scratch.cache.keep(key, std::span<const int32_t>(out).subspan(before));
  }
  void encode_long(std::string_view part, Scratch& scratch, std::vector<int32_t>& out) const;
  void merge(std::string_view part, Scratch& scratch, std::vector<int32_t>& out) const;
  void add_symbols(std::string_view part, std::vector<int32_t>& symbols) const;

  static size_t joint_of(char32_t before, char32_t after);

  bool of_bytes_, ignores_merges_ = false, fuses_unknown_ = false, falls_back_ = false;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<std::string, int32_t> whole_;
  size_t longest_whole_ = 0;
  BpeVocabulary vocabulary_;  // the merges; if pieces are bytes, also the tokens and their ids
  MergeTable table_;
  bool has_all_bytes_ = false;
  std::unique_ptr<RunCut> run_cut_;  // null unless each byte has a token
  int32_t unknown_ = -1;
  std::array<int32_t, 256> fallback_;   // ids of <0x00> to <0xFF>; -1: absent
  std::vector<int32_t> character_ids_;  // by code point; -1: absent
  std::vector<bool> joints_;            // by joint_of: whether a merge may join the two
};

}  // namespace megalith
