#include "data/samples/loader.h"

#include <algorithm>
#include <numeric>

#include "kernels/system/check.h"
#include "kernels/system/counted.h"

namespace megalith {

namespace {

using AllPacks = std::vector<std::shared_ptr<const Packs>>;

AllPacks all_packs_of(const std::vector<TokenStream>& streams, int64_t sequence_length, bool pack) {
  AllPacks all;
  for (const TokenStream& stream : streams)
    all.push_back(stream.is_masked() ? std::make_shared<const Packs>(stream, sequence_length, pack) : nullptr);
  return all;
}

std::vector<int64_t> samples_of(const std::vector<TokenStream>& streams, const AllPacks& packs,
                                int64_t sequence_length) {
  CHECK(sequence_length >= 1, "a sequence length of {}; it must be at least 1", sequence_length);
  std::vector<int64_t> samples;
  for (size_t i = 0; i < streams.size(); i++) {
    const TokenStream& stream = streams[i];
    if (packs[i]) {
      samples.push_back(packs[i]->size());
      continue;
    }
    samples.push_back((stream.size() - 1) / sequence_length);
    CHECK(samples.back() >= 1,
          "{} has {}, but one sample of sequence length {} takes {}; give more text or a sequence length of {} or less",
          stream.path(), counted(stream.size(), "token"), sequence_length, sequence_length + 1,
          std::max<int64_t>(stream.size() - 1, 1));
  }
  return samples;
}

}  // namespace

Loader::Loader(std::vector<TokenStream> streams, Blend blend, int64_t sequence_length, bool shuffle, uint64_t seed,
               bool pack)
    : streams_(std::move(streams)),
      packs_(all_packs_of(streams_, sequence_length, pack)),
      sequence_length_(sequence_length),
      pack_(pack),
      rests_(streams_.size()),
      order_(samples_of(streams_, packs_, sequence_length), std::move(blend), shuffle, seed) {}

bool Loader::is_masked() const {
  return std::ranges::any_of(packs_, [](const auto& packs) { return packs != nullptr; });
}

void Loader::resume(int64_t first, const std::vector<SourceCourse>& courses) {
  std::vector<SourceBegin> begins;
  for (size_t i = 0; i < courses.size(); i++) {
    begins.push_back(courses[i].begin());
    rests_[i] = {};
    if (!courses[i].rest()) continue;
    Rest& rest = rests_[i];
    rest.stretches = *courses[i].rest();
    for (const Stretch& s : rest.stretches)
      rest.ends.push_back((rest.ends.empty() ? 0 : rest.ends.back()) + s.end - s.begin);
    if (packs_[i]) rest.packs = std::make_shared<const Packs>(streams_[i], sequence_length_, pack_, &rest.stretches);
  }
  order_ = SampleOrder(order_.sizes(), order_.blend(), order_.shuffle(), order_.seed(), first, std::move(begins));
}

const Packs* Loader::packs_of(const Sample& sample) const {
  return (sample.of_rest ? rests_[sample.source].packs : packs_[sample.source]).get();
}

template <class Visit>
void Loader::for_each_part(const Sample& sample, const Visit& visit) const {
  const int64_t begin = sample.index * sequence_length_;
  if (!sample.of_rest) return visit(begin, sequence_length_, int64_t{0});
  const Rest& rest = rests_[sample.source];
  auto i = static_cast<size_t>(std::ranges::upper_bound(rest.ends, begin) - rest.ends.begin());
  for (int64_t place = 0; place < sequence_length_; i++) {
    const Stretch& s = rest.stretches[i];
    const int64_t from = s.end - (rest.ends[i] - begin - place);
    const int64_t count = std::min(s.end - from, sequence_length_ - place);
    visit(from, count, place);
    place += count;
  }
}

int64_t Loader::counted(int64_t first, int64_t count) const {
  int64_t sum = 0;
  for (int64_t n = first; n < first + count; n++) {
    const Sample sample = order_.at(n);
    const Packs* packs = packs_of(sample);
    sum += packs ? packs->counted(sample.index) : sequence_length_;
  }
  return sum;
}

int64_t Loader::num_samples() const {
  return std::accumulate(order_.sizes().begin(), order_.sizes().end(), int64_t{0});
}

void Loader::fill(int64_t first, int64_t count, std::span<int32_t> inputs, std::span<int32_t> targets) const {
  const auto length = static_cast<size_t>(sequence_length_);
  const auto want = static_cast<size_t>(count) * length;
  CHECK(count >= 0 && inputs.size() == want && targets.size() == want,
        "{} samples of {} tokens asked into {} inputs and {} targets", count, sequence_length_, inputs.size(),
        targets.size());
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; i++) {
    const Sample sample = order_.at(first + i);
    const size_t row = static_cast<size_t>(i) * length;
    if (const Packs* packs = packs_of(sample)) {
      packs->fill(sample.index, inputs.subspan(row, length), targets.subspan(row, length));
      continue;
    }
    for_each_part(sample, [&](int64_t begin, int64_t size, int64_t place) {
      tokens.resize(static_cast<size_t>(size) + 1);
      streams_[sample.source].read(begin, tokens);
      const auto at = static_cast<ptrdiff_t>(row) + place;
      std::copy(tokens.begin(), tokens.end() - 1, inputs.begin() + at);
      std::copy(tokens.begin() + 1, tokens.end(), targets.begin() + at);
    });
  }
}

std::vector<int64_t> Loader::document_begins(int64_t n) const {
  const Sample sample = order_.at(n);
  if (const Packs* packs = packs_of(sample)) return packs->begins(sample.index);
  std::vector<int64_t> begins;
  for_each_part(sample, [&](int64_t begin, int64_t size, int64_t place) {
    if (place > 0) begins.push_back(place);  // the text before it is of another place
    for (const int64_t at : streams_[sample.source].document_begins(begin, begin + size)) begins.push_back(place + at);
  });
  return begins;
}

std::string Loader::name_of(int64_t n) const {
  const Sample sample = order_.at(n);
  const std::string name = sample.of_rest ? fmt::format("{} of the rest of epoch {}", sample.index, sample.epoch)
                                          : std::to_string(sample.index);
  return streams_.size() == 1 ? name : fmt::format("{} ({})", name, streams_[sample.source].path());
}

}  // namespace megalith
