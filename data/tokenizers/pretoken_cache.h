// Caches the ids of pre-tokens of up to 23 bytes and 9 ids in a direct-mapped table. For one thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace megalith {

class PretokenCache {
 public:
  static constexpr size_t longest_pretoken = 23, most_ids = 9;

  // The pre-token, padded with zeros, with its length in the last byte. A longer one has no key.
  struct Key {
    std::array<uint64_t, 3> words{};
    bool operator==(const Key&) const = default;
  };
  static Key key_of(std::string_view pretoken) {
    Key key;
    std::memcpy(key.words.data(), pretoken.data(), pretoken.size());
    key.words[2] |= static_cast<uint64_t>(pretoken.size()) << 56;
    return key;
  }

  PretokenCache() : entries_(num_entries) {}

  // Returns an empty span if the pre-token is not cached: each has at least one id.
  std::span<const int32_t> find(const Key& key) const {
    const Entry& entry = entries_[slot_of(key)];
    if (!(entry.key == key)) return {};
    return {entry.ids.data(), entry.count};
  }
  void keep(const Key& key, std::span<const int32_t> ids) {
    if (ids.size() > most_ids) return;
    Entry& entry = entries_[slot_of(key)];
    entry.key = key;
    entry.count = static_cast<uint32_t>(ids.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  static constexpr int slot_bits = 15;
  static constexpr size_t num_entries = size_t{1} << slot_bits;
  struct alignas(64) Entry {
    Key key;
    uint32_t count = 0;
    std::array<int32_t, most_ids> ids;
  };
  static_assert(sizeof(Entry) == 64);

  static size_t slot_of(const Key& key) {
    uint64_t h =
        key.words[0] * 0x9e3779b97f4a7c15u ^ key.words[1] * 0xc2b2ae3d27d4eb4fu ^ key.words[2] * 0x165667b19e3779f9u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return static_cast<size_t>(h >> (64 - slot_bits));
  }

  std::vector<Entry> entries_;
};

}  // namespace megalith
