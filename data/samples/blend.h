// The order in which several sources are sampled, a pure function of the sample's number and the shares. Resuming and
// any division among ranks therefore need no state.
//
// Shares are integers that add up to M, the length of a cycle, in which every source comes exactly as often as its
// share. Within it the order is Tijdeman's (The chairman assignment problem, 1980): after any n samples a source's
// count differs from n * share / M by at most 1 - 1 / (2k - 2) for k sources, the least that is possible for all
// shares. So in any window of samples a count differs from its share by at most 1 for two sources, and by at most 2 - 1
// / (k - 1) for more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace megalith {

class Blend {
 public:
  static constexpr int64_t longest_cycle = int64_t{1} << 22;

  // Takes a share of at least 1 for each source, and divides out common factors. Error: a cycle beyond longest_cycle.
  explicit Blend(std::vector<int64_t> shares);

  struct Sample {
    size_t source;
    int64_t before;  // number of earlier samples of that source
    bool operator==(const Sample&) const = default;
  };
  Sample at(int64_t n) const;

  // Returns how many of the first n samples come from a source, in time proportional to the cycle.
  int64_t count(size_t source, int64_t n) const;

  const std::vector<int64_t>& shares() const { return shares_; }
  int64_t cycle() const { return static_cast<int64_t>(cycle_.size()); }

 private:
  std::vector<int64_t> shares_;
  std::vector<Sample> cycle_;
};

}  // namespace megalith
