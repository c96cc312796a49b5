// The tables of a byte-level BPE and GPT-2's files of them, vocab.json and merges.txt. These write a byte as a
// character: bytes printable in Latin-1 as themselves, the others, in order, as U+0100, U+0101, ... (so a space is
// U+0120).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace megalith {

constexpr std::string_view end_of_text_name = "<|endoftext|>";  // GPT-2's, also used by tokenizers made here

struct BpeVocabulary {
  struct Merge {
    int32_t left, right, result;
  };
  std::vector<std::string> tokens;  // each id's bytes; empty for end_of_text
  std::vector<Merge> merges;        // earlier ones win; result's bytes are left's and right's
  std::array<int32_t, 256> byte_ids{};
  int32_t end_of_text = -1;
  std::string end_name{end_of_text_name};
  std::vector<int32_t> specials;  // special tokens except end_of_text, ascending; no merge makes one
  TokenUse use;
};

// Returns the vocabulary of the byte tokenizer. Without merges every byte is a token, whatever the pre-tokens.
BpeVocabulary bpe_of_bytes();

// Returns the 256 bytes in GPT-2's order: the printable ones first.
std::array<uint8_t, 256> bytes_in_gpt2_order();

// Reads special tokens as special_tokens.h does. Errors: a file that is missing or malformed; ids that are not 0..V-1,
// each once; a byte, the end of text, or a part or result of a merge without a token; a merge given twice.
BpeVocabulary read_bpe(const std::string& folder);
void write_bpe(const BpeVocabulary& vocabulary, const std::string& folder);

// Serializes every token and merge, in order: equal for equal vocabularies only.
std::string content_of(const BpeVocabulary& vocabulary);

}  // namespace megalith
