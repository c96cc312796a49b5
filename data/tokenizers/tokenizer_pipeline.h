// The content of a tokenizer.json: the parts that a text goes through, the tokens by id, and where a text may be cut.
// Inside data/ only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/bpe_model.h"
#include "data/tokenizers/text_cutter.h"
#include "data/tokenizers/text_frame.h"
#include "data/tokenizers/text_normalizer.h"
#include "data/tokenizers/token_decoder.h"

namespace megalith {

// Shared by the tokenizer that treats special tokens as text and the one that encodes them as ids.
struct TokenizerPipeline {
  // `named_end`: the eos_token of the other files. Error, with `path`: an unsupported part, ids that are not 0 to
  // size() - 1, or no end_of_text.
  TokenizerPipeline(const nlohmann::json& file, const std::string& path, const std::optional<std::string>& named_end);

  int32_t size() const { return static_cast<int32_t>(names.size()); }
  // Returns whether GPT-2's parts would produce the same ids with the same vocabulary. Then ids stand for the unchanged
  // bytes of a text, and each byte has a token.
  bool is_gpt2() const { return is_gpt2_; }

  // As Tokenizer::last_cut.
  size_t last_cut(std::string_view text, bool with_specials) const;

  TextNormalizer normalizer;
  TextCutter cutter;
  BpeModel model;
  TokenDecoder decoder;
  std::vector<AddedToken> added;
  AddedTokenFinder raw, normalized;
  TextFrame frame;
  std::vector<std::string> names, written, bytes;  // by id; written: as the decoder reads it
  std::vector<bool> is_special, is_left_out;       // is_left_out: when decoding without special tokens
  int32_t end_of_text = -1;
  std::string end_name;

 private:
  bool is_added(int32_t id) const { return std::ranges::find(added, id, &AddedToken::id) != added.end(); }
  void check_bytes(const std::string& path) const;
  bool merges_make_whole_pieces() const;
  void name_tokens(const std::string& path);
  void find_end(const std::optional<std::string>& named_end, const std::string& path);
  // Returns how many bytes of a text's first characters become this many bytes when normalized.
  size_t characters_that_become(std::string_view text, size_t wanted) const;
  size_t cut_of_characters(std::string_view text, bool with_specials) const;
  size_t cut_of_pieces(std::string_view text, bool with_specials) const;
  size_t cut_of_run(std::string_view text) const;

  bool is_gpt2_ = false;
};

}  // namespace megalith
