#include "data/samples/blend.h"

#include <numeric>

#include "kernels/system/check.h"

namespace megalith {

Blend::Blend(std::vector<int64_t> shares) : shares_(std::move(shares)) {
  CHECK(!shares_.empty(), "a blend needs at least one source");
  int64_t divisor = 0;
  for (const int64_t share : shares_) {
    CHECK(share >= 1, "a share of {} in a blend; it must be at least 1", share);
    divisor = std::gcd(divisor, share);
  }
  int64_t length = 0;
  for (int64_t& share : shares_) {
    length += share /= divisor;
    CHECK(length <= longest_cycle,
          "the weights of a blend repeat only after more than {} samples; write them with fewer digits", longest_cycle);
  }

  // Tijdeman's rule in integers. due[i] is M times the number of samples by which source i lags its due n * share / M.
  // Sources that lag by 1 / (2k - 2) or more are eligible; the one whose bound is exceeded first is chosen.
  const auto k = static_cast<int64_t>(shares_.size()), d = k > 1 ? 2 * k - 2 : 1;
  std::vector<int64_t> due(shares_.size(), 0), before(shares_.size(), 0);
  cycle_.reserve(static_cast<size_t>(length));
  for (int64_t n = 0; n < length; n++) {
    size_t chosen = shares_.size();
    const auto slack = [&](size_t i) { return (d - 1) * length - d * due[i]; };
    for (size_t i = 0; i < shares_.size(); i++) {
      due[i] += shares_[i];
      if (k > 1 && d * due[i] < length) continue;
      if (chosen == shares_.size() || slack(i) * shares_[chosen] < slack(chosen) * shares_[i]) chosen = i;
    }
    CHECK(chosen < shares_.size(), "no source is due for sample {} of a cycle of {}", n, length);
    due[chosen] -= length;
    cycle_.push_back({chosen, before[chosen]++});
  }
}

Blend::Sample Blend::at(int64_t n) const {
  CHECK(n >= 0, "sample {} of a run", n);
  const Sample& sample = cycle_[static_cast<size_t>(n % cycle())];
  return {sample.source, n / cycle() * shares_[sample.source] + sample.before};
}

int64_t Blend::count(size_t source, int64_t n) const {
  int64_t found = n / cycle() * shares_[source];
  for (int64_t i = 0; i < n % cycle(); i++) found += cycle_[static_cast<size_t>(i)].source == source;
  return found;
}

}  // namespace megalith
