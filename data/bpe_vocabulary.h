// The tables of a byte-level BPE and their files, vocab.json and merges.txt as GPT-2 has them.
//
// The files write a byte as a printable character: bytes that are printable in Latin-1 as themselves, the others, in
// order, as U+0100, U+0101, ... (so a space is U+0120).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megalith {

constexpr std::string_view end_of_text_name = "<|endoftext|>";  // GPT-2's, and of tokenizers that are made here

struct BpeVocabulary {
  struct Merge {
    int32_t left, right, result;
  };
  std::vector<std::string> tokens;  // the bytes of each id; empty for end_of_text
  std::vector<Merge> merges;        // the earlier wins; the bytes of result are those of left and right
  std::array<int32_t, 256> byte_ids{};
  int32_t end_of_text = -1;
  std::string end_name{end_of_text_name};
  std::vector<int32_t> specials;  // beside the end of a text, ascending; no merge makes one
};

// The 256 bytes in GPT-2's order: the printable ones first.
std::array<uint8_t, 256> bytes_in_gpt2_order();

// Special tokens, and which of them ends a text, are those of special_tokens.h. Errors: a file that is missing or
// malformed; ids that are not 0..V-1 each once; a byte, the end of text or a part or result of a merge that is no
// token; a merge given twice.
BpeVocabulary read_bpe(const std::string& folder);
void write_bpe(const BpeVocabulary& vocabulary, const std::string& folder);

// Every token and merge, in order: equal for equal vocabularies only.
std::string content_of(const BpeVocabulary& vocabulary);

}  // namespace megalith
