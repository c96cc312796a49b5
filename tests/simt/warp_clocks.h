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

  // Begins a block. Its first accesses have time 1.
  void begin(int warps);
  // Describes a named barrier to which some threads have come, but not all; "" if there is none.
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
  // Lets a warp come to the named barrier `id` of `threads` threads. Returns the warps that waited there, a bit each,
  // if this completes the barrier, and otherwise 0. Error: the number is not 1 to 15; the threads are not whole warps
  // of the block; other threads came to a barrier of another size.
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
