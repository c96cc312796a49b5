#include "data/samples/packs.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>

#include "kernels/system/check.h"
#include "kernels/system/counted.h"

namespace megalith {

Packs::Packs(TokenStream stream, int64_t sequence_length, bool pack, const Stretches* within)
    : stream_(std::move(stream)), sequence_length_(sequence_length) {
  CHECK(sequence_length >= 1, "a sequence length of {}; it must be at least 1", sequence_length);
  find_examples(within);
  ends_.resize(examples_.size());
  std::iota(ends_.begin(), ends_.end(), int64_t{1});
  if (pack) pack_examples();
  std::vector<uint8_t> counts;
  for (int64_t sequence = 0; sequence < size(); sequence++) {
    int64_t counted = 0;
    for (const Example& example : examples_of(sequence)) {
      counts.resize(static_cast<size_t>(example.tokens));
      stream_.read_mask(example.begin, counts);
      counted += std::count(counts.begin() + 1, counts.end(), 1);
    }
    counted_.push_back(static_cast<int32_t>(counted));
  }
}

void Packs::find_examples(const Stretches* within) {
  int64_t longest = 0, too_long = 0, begin = 0;
  size_t stretch = 0;
  const auto is_within = [&] {
    if (!within) return true;
    while (stretch < within->size() && (*within)[stretch].end <= begin) stretch++;
    return stretch < within->size() && (*within)[stretch].begin <= begin;
  };
  const auto add = [&](int64_t end) {
    const int64_t tokens = end - begin;
    longest = std::max(longest, tokens);
    too_long += tokens > sequence_length_ + 1;
    if (tokens >= 2 && tokens <= sequence_length_ + 1 && is_within()) {
      examples_.push_back({begin, static_cast<int32_t>(tokens)});
      places_ += tokens - 1;
    }
    begin = end;
  };
  for (const int64_t next : stream_.document_begins(0, stream_.size())) add(next);
  add(stream_.size());
  CHECK(too_long == 0,
        "{} has {} of more than {} tokens, which do not fit into a sequence of {}, the longest of {}; prepare again "
        "with --sequence-length {}, which cuts them or, with --longer leave-out, leaves them out, or set "
        "batch.sequence_length={}",
        stream_.path(), megalith::counted(too_long, "example"), sequence_length_ + 1, sequence_length_, longest,
        sequence_length_, longest - 1);
  CHECK(within || !examples_.empty(),
        "{} has {} and no example of two tokens, so that no token is predicted; give more text", stream_.path(),
        megalith::counted(stream_.size(), "token"));
}

void Packs::pack_examples() {
  const size_t n = examples_.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return examples_[a].tokens > examples_[b].tokens; });
  // The numbers of packs, the smallest first.
  using First = std::priority_queue<size_t, std::vector<size_t>, std::greater<>>;
  std::map<int64_t, First> by_room;
  std::vector<std::vector<size_t>> packs;
  for (const size_t e : order) {
    const int64_t need = examples_[e].tokens - 1;
    int64_t room = sequence_length_;
    size_t pack = packs.size();
    if (const auto fits = by_room.lower_bound(need); fits != by_room.end()) {
      room = fits->first;
      pack = fits->second.top();
      fits->second.pop();
      if (fits->second.empty()) by_room.erase(fits);
    } else {
      packs.emplace_back();
    }
    packs[pack].push_back(e);
    if (room > need) by_room[room - need].push(pack);
  }
  for (std::vector<size_t>& pack : packs) std::ranges::sort(pack);
  std::ranges::sort(packs);
  std::vector<Example> examples;
  examples.reserve(n);
  ends_.clear();
  for (const std::vector<size_t>& pack : packs) {
    for (const size_t e : pack) examples.push_back(examples_[e]);
    ends_.push_back(std::ssize(examples));
  }
  examples_ = std::move(examples);
}

Stretches Packs::places_of(int64_t sequence) const {
  Stretches places;
  for (const Example& e : examples_of(sequence)) places.push_back({e.begin, e.begin + e.tokens});
  return places;
}

std::span<const Packs::Example> Packs::examples_of(int64_t sequence) const {
  CHECK(sequence >= 0 && sequence < size(), "sequence {} of {}", sequence, size());
  const auto i = static_cast<size_t>(sequence);
  const auto begin = static_cast<size_t>(i == 0 ? 0 : ends_[i - 1]), end = static_cast<size_t>(ends_[i]);
  return std::span(examples_).subspan(begin, end - begin);
}

void Packs::fill(int64_t sequence, std::span<int32_t> inputs, std::span<int32_t> targets) const {
  const auto length = static_cast<size_t>(sequence_length_);
  CHECK(inputs.size() == length && targets.size() == length, "a sequence of {} asked into {} inputs and {} targets",
        length, inputs.size(), targets.size());
  std::ranges::fill(inputs, 0);
  std::ranges::fill(targets, -1);
  std::vector<int32_t> tokens;
  std::vector<uint8_t> counts;
  size_t at = 0;
  for (const Example& example : examples_of(sequence)) {
    tokens.resize(static_cast<size_t>(example.tokens));
    counts.resize(tokens.size());
    stream_.read(example.begin, tokens);
    stream_.read_mask(example.begin, counts);
    for (size_t i = 0; i + 1 < tokens.size(); i++, at++) {
      inputs[at] = tokens[i];
      if (counts[i + 1] == 1) targets[at] = tokens[i + 1];
    }
  }
}

std::vector<int64_t> Packs::begins(int64_t sequence) const {
  std::vector<int64_t> places;
  int64_t at = 0;
  for (const Example& example : examples_of(sequence)) {
    if (at > 0) places.push_back(at);
    at += example.tokens - 1;
  }
  for (; at < sequence_length_; at++) places.push_back(at);
  return places;
}

}  // namespace megalith
