#include "data/loader.h"

#include <algorithm>
#include <vector>

#include "data/permutation.h"
#include "kernels/base/check.h"
#include "kernels/base/counted.h"

namespace megalith {

Loader::Loader(TokenStream stream, int64_t sequence_length, bool shuffle, uint64_t seed)
    : stream_(std::move(stream)), sequence_length_(sequence_length), shuffle_(shuffle), seed_(seed) {
  CHECK(sequence_length >= 1, "a sequence length of {}; it must be at least 1", sequence_length);
  num_samples_ = (stream_.size() - 1) / sequence_length;
  CHECK(num_samples_ >= 1,
        "{} holds {}, but one sample of sequence length {} takes {}; give more text or a sequence length of {} or "
        "less",
        stream_.path(), counted(stream_.size(), "token"), sequence_length, sequence_length + 1,
        std::max<int64_t>(stream_.size() - 1, 1));
}

int64_t Loader::sample_at(int64_t n) const {
  CHECK(n >= 0, "sample {} of a run", n);
  const int64_t position = n % num_samples_;
  if (!shuffle_) return position;
  return Permutation(num_samples_, seed_, static_cast<uint64_t>(n / num_samples_))(position);
}

void Loader::fill(int64_t first, int64_t count, std::span<int32_t> inputs, std::span<int32_t> targets) const {
  const auto length = static_cast<size_t>(sequence_length_);
  const auto want = static_cast<size_t>(count) * length;
  CHECK(count >= 0 && inputs.size() == want && targets.size() == want,
        "{} samples of {} tokens asked into {} inputs and {} targets", count, sequence_length_, inputs.size(),
        targets.size());
  std::vector<int32_t> sample(length + 1);
  for (int64_t i = 0; i < count; i++) {
    stream_.read(sample_at(first + i) * sequence_length_, sample);
    const size_t row = static_cast<size_t>(i) * length;
    std::copy_n(sample.begin(), length, inputs.begin() + static_cast<ptrdiff_t>(row));
    std::copy_n(sample.begin() + 1, length, targets.begin() + static_cast<ptrdiff_t>(row));
  }
}

}  // namespace megalith
