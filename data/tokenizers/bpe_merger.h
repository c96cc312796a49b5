// Byte-pair merging of one pre-token: repeatedly merges the leftmost pair of the earliest merge (Sennrich, Haddow,
// Birch 2016, on bytes). Short pre-tokens are scanned after every merge; long ones keep pairs in a heap, O(n log n).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/tokenizers/bpe_vocabulary.h"

namespace megalith {

// Maps two neighbouring ids to their merge and its rank. Immutable.
class MergeTable {
 public:
  static constexpr uint32_t no_rank = UINT32_MAX;
  struct Found {
    uint32_t rank;  // no_rank: the two do not merge
    int32_t result;
  };

  explicit MergeTable(const BpeVocabulary& vocabulary);

  Found find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].found;
      if (slots_[i].key == empty_key) return {no_rank, -1};
    }
  }
  int32_t byte_id(char byte) const { return byte_ids_[static_cast<uint8_t>(byte)]; }

 private:
  static constexpr uint64_t empty_key = UINT64_MAX;
  struct Entry {
    uint64_t key = empty_key;
    Found found{no_rank, -1};
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const { return static_cast<size_t>((key * 0x9e3779b97f4a7c15u) >> 32) & mask_; }

  std::vector<Entry> slots_;
  size_t mask_;
  std::array<int32_t, 256> byte_ids_;
};

// Scratch memory of merging, for one thread. The table must outlive it.
class BpeMerger {
 public:
  explicit BpeMerger(const MergeTable& table) : table_(table) {}

  // Appends the ids of a pre-token of less than 2^31 bytes.
  void merge(std::string_view pretoken, std::vector<int32_t>& out);
  // As above, for a pre-token given as the ids of its bytes or characters.
  void merge(std::span<const int32_t> symbols, std::vector<int32_t>& out);

 private:
  struct Link {
    int32_t id, previous, next;  // id -1: merged into the previous; next -1: the last
  };

  template <class IdAt>
  void merge_symbols(size_t count, IdAt id_at, std::vector<int32_t>& out);
  template <class IdAt>
  void merge_short(size_t count, IdAt id_at, std::vector<int32_t>& out);
  template <class IdAt>
  void merge_long(size_t count, IdAt id_at, std::vector<int32_t>& out);
  void push_pair(int32_t left);

  const MergeTable& table_;
  std::vector<Link> links_;
  std::vector<uint64_t> heap_;  // rank << 32 | position of the left id, smallest on top
};

}  // namespace megalith
