// The tables of a byte-level BPE and GPT-2's files of them, vocab.json and merges.txt. These write a byte as a
// character: bytes printable in Latin-1 as themselves, the others, in order, as U+0100, U+0101, ... (so a space is
// U+0120).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

constexpr const char* vocab_file = "vocab.json";
constexpr const char* merges_file = "merges.txt";
// GPT-2's name, which tokenizers that prepare trains use too.
constexpr std::string_view end_of_text_name = "<|endoftext|>";

struct BpeVocabulary {
  struct Merge {
    int32_t left, right, result;
  };
  std::vector<std::string> tokens;  // each id's bytes; empty for end_of_text
  std::vector<Merge> merges;        // earlier ones win; result's bytes are left's and right's
  std::array<int32_t, 256> byte_ids{};
  int32_t end_of_text = -1;
};

// Returns the vocabulary of the byte tokenizer. It has no merges, so every byte is a token.
BpeVocabulary bpe_of_bytes();

// Returns the 256 bytes in GPT-2's order: the printable ones first.
std::array<uint8_t, 256> bytes_in_gpt2_order();

// Returns GPT-2's files of a vocabulary, by name.
std::map<std::string, std::string> gpt2_files(const BpeVocabulary& vocabulary);

}  // namespace megalith
