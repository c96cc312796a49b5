// In which order blocks take the tiles of attention's heads: of so many heads at once the last tiles, then those before
// them, and so on; then the next heads. What several heads read may stay in L2 so long, and blocks of one head begin
// some time after one another.
#pragma once

#include <algorithm>
#include <cstdint>

namespace megalith::cuda::attention {

struct HeadOrder {
  int32_t heads, tiles, at_once;  // heads * tiles < 2^31

  constexpr int64_t blocks() const { return int64_t{heads} * tiles; }
  struct Work {
    int32_t head, tile;
  };
  constexpr Work of(int32_t block) const {
    const int32_t group = block / (at_once * tiles), first = group * at_once;
    const int32_t in_group = std::min(at_once, heads - first), rest = block - first * tiles;
    return {first + rest % in_group, tiles - 1 - rest / in_group};
  }
};

// Of how many heads an H100's cache holds keys and values in 16 bits: half of its 50 MB, for queries and results pass
// through it as well.
constexpr int64_t heads_in_l2(int64_t positions, int64_t size) {
  return std::max<int64_t>(1, (int64_t{25} << 20) / (2 * positions * size * 2));
}
// Of the backward pass, whose sums of so many heads have rooms: all heads at once, or else few enough that a head does
// not wait for the one that has its room, which is of the second group before its own or an earlier one.
constexpr int64_t heads_in_rooms(int64_t heads, int64_t rooms) {
  return rooms >= heads ? heads : std::max<int64_t>(1, rooms / 3);
}
// Groups as equal as can be, of `most` heads or fewer; most >= 1.
constexpr HeadOrder head_order(int64_t heads, int64_t tiles, int64_t most) {
  const int64_t groups = (heads + most - 1) / most;
  return {static_cast<int32_t>(heads), static_cast<int32_t>(tiles),
          static_cast<int32_t>((heads + groups - 1) / groups)};
}

}  // namespace megalith::cuda::attention
