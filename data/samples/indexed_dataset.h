// The .bin/.idx pair of Megatron-LM's IndexedDataset (megatron/core/datasets/indexed_dataset.py). The .bin is tokens
// and nothing else. The .idx, all little-endian, without padding:
//
//   char[9]   "MMIDIDX\0\0"
//   uint64    version, 1
//   uint8     element type of the tokens: 8 is uint16 (for vocabularies below 65500), 4 is int32
//   uint64    number of sequences n
//   uint64    number of document bounds m, one more than there are documents
//   int32[n]  length of each sequence in tokens
//   int64[n]  where each sequence begins in the .bin, in bytes: here, one after the other
//   int64[m]  document bounds, in sequences, from 0 to n: document d is sequences [bound[d], bound[d+1])
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace megalith::indexed_dataset {

using Magic = std::array<char, 9>;
constexpr Magic magic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr uint64_t version = 1;
constexpr size_t header_bytes = 9 + 8 + 1 + 8 + 8;

enum class Element : uint8_t { int32 = 4, uint16 = 8 };

constexpr Element element_for(int64_t vocab_size) { return vocab_size < 65500 ? Element::uint16 : Element::int32; }
constexpr int bytes_of(Element element) { return element == Element::uint16 ? 2 : 4; }

}  // namespace megalith::indexed_dataset
