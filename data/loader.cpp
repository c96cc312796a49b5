#include "data/loader.h"

#include <algorithm>
#include <numeric>

#include "kernels/system/check.h"
#include "kernels/system/counted.h"

namespace megalith {

namespace {

using AllPacks = std::vector<std::shared_ptr<const Packs>>;

AllPacks packs_of(const std::vector<TokenStream>& streams, int64_t sequence_length, bool pack) {
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
          "{} holds {}, but one sample of sequence length {} takes {}; give more text or a sequence length of {} "
          "or less",
          stream.path(), counted(stream.size(), "token"), sequence_length, sequence_length + 1,
          std::max<int64_t>(stream.size() - 1, 1));
  }
  return samples;
}

}  // namespace

Loader::Loader(std::vector<TokenStream> streams, Blend blend, int64_t sequence_length, bool shuffle, uint64_t seed,
               bool pack)
    : streams_(std::move(streams)),
      packs_(packs_of(streams_, sequence_length, pack)),
      sequence_length_(sequence_length),
      order_(samples_of(streams_, packs_, sequence_length), std::move(blend), shuffle, seed) {}

bool Loader::is_masked() const {
  return std::ranges::any_of(packs_, [](const auto& packs) { return packs != nullptr; });
}

int64_t Loader::counted(int64_t first, int64_t count) const {
  int64_t sum = 0;
  for (int64_t n = first; n < first + count; n++) {
    const Sample sample = order_.at(n);
    const Packs* packs = packs_[sample.source].get();
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
  std::vector<int32_t> tokens(length + 1);
  for (int64_t i = 0; i < count; i++) {
    const Sample sample = order_.at(first + i);
    const size_t row = static_cast<size_t>(i) * length;
    if (const Packs* packs = packs_[sample.source].get()) {
      packs->fill(sample.index, inputs.subspan(row, length), targets.subspan(row, length));
      continue;
    }
    streams_[sample.source].read(sample.index * sequence_length_, tokens);
    std::copy_n(tokens.begin(), length, inputs.begin() + static_cast<ptrdiff_t>(row));
    std::copy_n(tokens.begin() + 1, length, targets.begin() + static_cast<ptrdiff_t>(row));
  }
}

std::vector<int64_t> Loader::document_begins(int64_t n) const {
  const Sample sample = order_.at(n);
  if (const Packs* packs = packs_[sample.source].get()) return packs->begins(sample.index);
  const int64_t begin = sample.index * sequence_length_;
  return streams_[sample.source].document_begins(begin, begin + sequence_length_);
}

std::string Loader::name_of(int64_t n) const {
  const Sample sample = order_.at(n);
  return streams_.size() == 1 ? std::to_string(sample.index)
                              : fmt::format("{} ({})", sample.index, streams_[sample.source].path());
}

}  // namespace megalith
