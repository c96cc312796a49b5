// In which order the samples of several sources come: sample n of a run is a pure function of n and the shares, so that
// resuming and any division among ranks need no state.
//
// Shares are whole numbers that add up to M, the length of a cycle; in each cycle every source comes exactly as often
// as its share says. Inside it the order is Tijdeman's (The chairman assignment problem, 1980): after any n samples the
// number of those of a source differs from n * share / M by at most 1 - 1 / (2k - 2), where there are k sources, which
// is the least that can be promised for all shares. So in any window of consecutive samples, 1,000 or other, a source's
// count differs from its share by at most 1 for two sources, and by at most 2 - 1 / (k - 1), less than 2, for more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace megalith {

class Blend {
 public:
  static constexpr int64_t longest_cycle = int64_t{1} << 22;

  // One share for each source, at least 1; what divides them all is divided out. Error: they add up to more than
  // longest_cycle.
  explicit Blend(std::vector<int64_t> shares);

  struct Place {
    size_t source;
    int64_t before;  // samples of that source that came before
    bool operator==(const Place&) const = default;
  };
  Place at(int64_t n) const;

  // Samples of a source among the first n. Takes time in proportion to the cycle.
  int64_t count(size_t source, int64_t n) const;

  const std::vector<int64_t>& shares() const { return shares_; }
  int64_t cycle() const { return static_cast<int64_t>(cycle_.size()); }

 private:
  std::vector<int64_t> shares_;
  std::vector<Place> cycle_;
};

}  // namespace megalith
