#include "data/tokenizers/bpe_trainer.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_set>
#include <vector>

#include "kernels/system/check.h"
#include "kernels/system/long_work.h"

namespace megalith {

namespace {

using Position = uint32_t;  // place of a byte among all distinct pre-tokens
constexpr Position nowhere = std::numeric_limits<Position>::max();

using PairKey = uint64_t;
PairKey key_of(int32_t left, int32_t right) { return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right); }

struct Pair {
  int64_t count = 0;
  std::vector<Position> places;  // of the left token; may be outdated
};

struct Candidate {
  int64_t count;
  PairKey key;
  bool operator<(const Candidate& other) const { return count != other.count ? count < other.count : key > other.key; }
};

// All pre-tokens, concatenated, as linked lists of tokens, with the pairs in them.
class LinkedPretokens {
 public:
  // Adds a pre-token. Their order does not change the result.
  void add_pretoken(std::string_view pretoken, int64_t count, const std::array<int32_t, 256>& byte_ids) {
    const auto begin = static_cast<Position>(links_.size());
    const auto end = static_cast<Position>(begin + pretoken.size());
    for (Position p = begin; p < end; p++)
      links_.push_back({byte_ids[static_cast<uint8_t>(pretoken[p - begin])], static_cast<uint32_t>(counts_.size()),
                        p > begin ? p - 1 : nowhere, p + 1 < end ? p + 1 : nowhere});
    counts_.push_back(count);
    for (Position p = begin; p + 1 < end; p++) change(p, +1);
  }

  const std::unordered_map<PairKey, Pair>& pairs() const { return pairs_; }
  int64_t count_of(PairKey key) const {
    const auto found = pairs_.find(key);
    return found == pairs_.end() ? 0 : found->second.count;
  }
  void forget(PairKey key) { pairs_.erase(key); }

  // Replaces each pair `key` by `result`, left to right. Returns the new pairs.
  std::vector<PairKey> merge(PairKey key, int32_t result) {
    std::vector<Position> places = std::move(pairs_.at(key).places);
    std::sort(places.begin(), places.end());
    std::vector<PairKey> changed;
    for (const Position p : places) {
      if (links_[p].id < 0 || links_[p].next == nowhere || key_at(p) != key) continue;
      Link& left = links_[p];
      const Position q = left.next, before = left.previous, after = links_[q].next;
      if (before != nowhere) change(before, -1);
      if (after != nowhere) change(q, -1);
      left.id = result;
      left.next = after;
      links_[q].id = -1;
      if (after != nowhere) links_[after].previous = p;
      if (before != nowhere) changed.push_back(change(before, +1));
      if (after != nowhere) changed.push_back(change(p, +1));
    }
    forget(key);
    std::sort(changed.begin(), changed.end());
    changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
    return changed;
  }

 private:
  struct Link {
    int32_t id;  // -1: merged into the previous
    uint32_t pretoken;
    Position previous, next;
  };

  PairKey key_at(Position p) const { return key_of(links_[p].id, links_[links_[p].next].id); }

  PairKey change(Position p, int sign) {
    const PairKey key = key_at(p);
    Pair& pair = pairs_[key];
    pair.count += sign * counts_[links_[p].pretoken];
    if (sign > 0) pair.places.push_back(p);
    return key;
  }

  std::vector<Link> links_;
  std::vector<int64_t> counts_;  // count of each pre-token
  std::unordered_map<PairKey, Pair> pairs_;
};

}  // namespace

void PretokenCounts::count(const Pretokenizer& pretokenizer, std::string_view text) {
  while (!text.empty()) {
    const std::string_view pretoken = text.substr(0, std::min(pretokenizer.first_pretoken(text), longest_pretoken));
    text.remove_prefix(pretoken.size());
    const auto found = counts_.find(pretoken);
    if (found == counts_.end())
      counts_.emplace(pretoken, 1);
    else
      found->second++;
  }
}

void PretokenCounts::add(PretokenCounts&& other) {
  if (counts_.empty()) counts_.swap(other.counts_);
  for (const auto& [pretoken, count] : other.counts_) counts_[pretoken] += count;
  other.counts_.clear();
}

BpeVocabulary train_bpe(const PretokenCounts& counts, int32_t vocab_size) {
  CHECK(vocab_size >= smallest_trained_vocab, "a vocabulary of {} tokens cannot be trained; the minimum is {}",
        vocab_size, smallest_trained_vocab);
  BpeVocabulary vocabulary;
  for (const uint8_t byte : bytes_in_gpt2_order()) {
    vocabulary.byte_ids[byte] = static_cast<int32_t>(vocabulary.tokens.size());
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  }
  size_t bytes = 0;
  for (const auto& [pretoken, count] : counts.counts_) bytes += pretoken.size();
  CHECK(bytes < nowhere, "the text's different pre-tokens have {} bytes; training takes less than {}", bytes, nowhere);
  LinkedPretokens corpus;
  for (const auto& [pretoken, count] : counts.counts_) corpus.add_pretoken(pretoken, count, vocabulary.byte_ids);

  std::priority_queue<Candidate> queue;
  for (const auto& [key, pair] : corpus.pairs()) queue.push({pair.count, key});
  std::unordered_set<std::string> known(vocabulary.tokens.begin(), vocabulary.tokens.end());
  const auto wanted = static_cast<size_t>(vocab_size - 1);
  LongWork work("training the tokenizer", static_cast<int64_t>(wanted - vocabulary.tokens.size()));
  while (vocabulary.tokens.size() < wanted) {
    CHECK(!queue.empty(), "the text yields a vocabulary of only {} tokens, not {}; give more text, or train:{}",
          vocabulary.tokens.size() + 1, vocab_size, vocabulary.tokens.size() + 1);
    const auto [count, key] = queue.top();
    queue.pop();
    const int64_t now = corpus.count_of(key);  // counts of old pairs only fall: queue the pair again with its new count
    if (now != count) {
      if (now > 0) queue.push({now, key});
      continue;
    }
    const auto left = static_cast<int32_t>(key >> 32), right = static_cast<int32_t>(key & 0xffffffffu);
    std::string token = vocabulary.tokens[static_cast<size_t>(left)] + vocabulary.tokens[static_cast<size_t>(right)];
    if (!known.insert(token).second) {
      corpus.forget(key);
      continue;
    }
    const auto result = static_cast<int32_t>(vocabulary.tokens.size());
    vocabulary.tokens.push_back(std::move(token));
    vocabulary.merges.push_back({left, right, result});
    work.advance(1);
    for (const PairKey changed : corpus.merge(key, result))
      if (const int64_t fresh = corpus.count_of(changed); fresh > 0) queue.push({fresh, changed});
  }
  vocabulary.end_of_text = static_cast<int32_t>(vocabulary.tokens.size());
  vocabulary.tokens.emplace_back();
  return vocabulary;
}

}  // namespace megalith
