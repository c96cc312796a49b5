// The order in which blocks take the tiles of attention's heads: the last tiles of a group of heads, the tiles before
// them, and so on; then the next group. Tensors that heads share can stay in L2, and the blocks of one head start some
// time apart.
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

// Returns how many heads' keys and values fit, in 16 bits, into half of an H100's 50 MB of L2. All other tensors need
// the other half.
constexpr int64_t heads_in_l2(int64_t positions, int64_t size) {
  return std::max<int64_t>(1, (int64_t{25} << 20) / (2 * positions * size * 2));
}
// Makes groups as equal as possible, of at most `most` heads; most >= 1.
constexpr HeadOrder head_order(int64_t heads, int64_t tiles, int64_t most) {
  const int64_t groups = (heads + most - 1) / most;
  return {static_cast<int32_t>(heads), static_cast<int32_t>(tiles),
          static_cast<int32_t>((heads + groups - 1) / groups)};
}

}  // namespace megalith::cuda::attention
