#include "data/tokenizers/bpe_merger.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "kernels/system/check.h"

namespace megalith {

namespace {

constexpr size_t longest_short_pretoken = 48;

}  // namespace

MergeTable::MergeTable(const BpeVocabulary& vocabulary)
    : slots_(std::bit_ceil(std::max<size_t>(16, 4 * vocabulary.merges.size()))),
      mask_(slots_.size() - 1),
      byte_ids_(vocabulary.byte_ids) {
  uint32_t rank = 0;
  for (const BpeVocabulary::Merge& merge : vocabulary.merges) {
    const uint64_t key = key_of(merge.left, merge.right);
    size_t i = slot_of(key);
    while (slots_[i].key != empty_key) i = (i + 1) & mask_;
    slots_[i] = {key, {rank++, merge.result}};
  }
}

template <class IdAt>
void BpeMerger::merge_symbols(size_t count, IdAt id_at, std::vector<int32_t>& out) {
  if (count <= longest_short_pretoken)
    merge_short(count, id_at, out);
  else
    merge_long(count, id_at, out);
}

template <class IdAt>
void BpeMerger::merge_short(size_t count, IdAt id_at, std::vector<int32_t>& out) {
  std::array<int32_t, longest_short_pretoken> ids;
  std::array<MergeTable::Found, longest_short_pretoken> pairs;  // pairs[i] is that of ids[i] and ids[i + 1]
  size_t n = count;
  for (size_t i = 0; i < n; i++) ids[i] = id_at(i);
  for (size_t i = 0; i + 1 < n; i++) pairs[i] = table_.find(ids[i], ids[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; i++)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == MergeTable::no_rank) break;
    ids[best] = pairs[best].result;
    n--;
    for (size_t i = best + 1; i < n; i++) ids[i] = ids[i + 1];
    for (size_t i = best + 1; i + 1 < n; i++) pairs[i] = pairs[i + 1];
    if (best > 0) pairs[best - 1] = table_.find(ids[best - 1], ids[best]);
    if (best + 1 < n) pairs[best] = table_.find(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n));
}

void BpeMerger::push_pair(int32_t left) {
  const Link& link = links_[static_cast<size_t>(left)];
  if (link.next < 0) return;
  const uint32_t rank = table_.find(link.id, links_[static_cast<size_t>(link.next)].id).rank;
  if (rank == MergeTable::no_rank) return;
  heap_.push_back(static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(left));
}

template <class IdAt>
void BpeMerger::merge_long(size_t count, IdAt id_at, std::vector<int32_t>& out) {
  CHECK(count <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
        "a run of {} bytes without a change between letters, numbers, spaces and other characters; at most 2^31 - 1 "
        "can be tokenized: insert spaces",
        count);
  const auto n = static_cast<int32_t>(count);
  links_.clear();
  for (int32_t i = 0; i < n; i++) links_.push_back({id_at(static_cast<size_t>(i)), i - 1, i + 1 < n ? i + 1 : -1});
  heap_.clear();
  for (int32_t i = 0; i < n; i++) push_pair(i);
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());

  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap_.back() >> 32);
    const auto position = static_cast<int32_t>(heap_.back() & 0xffffffffu);
    heap_.pop_back();
    Link& left = links_[static_cast<size_t>(position)];
    if (left.id < 0 || left.next < 0) continue;  // outdated: a merge has removed the pair
    Link& right = links_[static_cast<size_t>(left.next)];
    const MergeTable::Found found = table_.find(left.id, right.id);
    if (found.rank != rank) continue;
    left.id = found.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) links_[static_cast<size_t>(left.next)].previous = position;
    for (const int32_t changed : {left.previous, position}) {
      if (changed < 0) continue;
      const size_t before = heap_.size();
      push_pair(changed);
      if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
  }
  for (int32_t i = 0; i >= 0; i = links_[static_cast<size_t>(i)].next) out.push_back(links_[static_cast<size_t>(i)].id);
}

void BpeMerger::merge(std::string_view pretoken, std::vector<int32_t>& out) {
  merge_symbols(
      pretoken.size(), [&](size_t i) { return table_.byte_id(pretoken[i]); }, out);
}

void BpeMerger::merge(std::span<const int32_t> symbols, std::vector<int32_t>& out) {
  merge_symbols(
      symbols.size(), [&](size_t i) { return symbols[i]; }, out);
}

}  // namespace megalith
