// What is ordered before what in a block. Time is a count of the block's synchronizations. Each warp has a row that
// says, for every warp, before which time that warp's accesses are ordered before the next ones of this warp. Barriers
// join the rows of those that meet. (Method: vector clocks; Mattern, Virtual Time and Global States of Distributed
// Systems, 1989.)
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>

namespace megalith::simt {

class WarpClocks {
 public:
  static constexpr int max_warps = 32, max_barriers = 16;
  using Row = std::array<uint32_t, max_warps>;

  // A block of so many warps begins. Its first accesses have time 1.
  void begin(int warps);
  // Says which named barrier some have come to and not enough; empty: none.
  std::string unfinished() const;

  uint32_t now() const { return now_; }
  const Row& row(int warp) const { return rows_[static_cast<size_t>(warp)]; }
  // Returns the row of what all `count` warps from `first` on know.
  Row common_row(int first, int count) const;
  // Whether accesses of these warps (a bit each) at this time are ordered before the next ones of the row's warp.
  static bool knows(const Row& row, uint32_t warps, uint32_t time) {
    for (; warps; warps &= warps - 1)
      if (time >= row[static_cast<size_t>(std::countr_zero(warps))]) return false;
    return true;
  }

  void sync_warp(int warp);
  void sync_all();
  // A warp comes to the named barrier `id`, which is complete when `threads` threads have come. Returns the warps that
  // waited for it and go on now, a bit each: none while it is not complete.
  // Error: no such barrier; threads that are no whole warps of the block; others came with another number.
  uint32_t come(int id, int threads, int warp, bool waits);
  // Returns the threads that a barrier waits for and how many have come.
  int expected(int id) const { return 32 * barriers_[static_cast<size_t>(id)].expected; }
  int arrived(int id) const { return 32 * barriers_[static_cast<size_t>(id)].arrived; }

 private:
  struct Barrier {
    int expected = 0, arrived = 0;  // warps
    uint32_t waiting = 0;           // warps, a bit each
    Row joined{};
  };
  int warps_ = 0;
  uint32_t now_ = 0;
  std::array<Row, max_warps> rows_{};
  std::array<Barrier, max_barriers> barriers_{};
};

}  // namespace megalith::simt
