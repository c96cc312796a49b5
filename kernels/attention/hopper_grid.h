// How attention's passes on Hopper divide their work by the shape, which scratch memory this takes, and how long the
// passes take about (attention_forward_hopper.cu, attention_backward_hopper.cu). All functions are pure; launches,
// plans and predictions read the same ones.
//
// Times are in visits: a visit is a block's work on one tile of the other side. The constants were fitted to
// bench/results/h200.md, those of the backward pass with bench/attention_model.h.
#pragma once

#include "kernels/attention/attention_order.h"

namespace megalith::cuda::attention {

// Returns whether there are kernels with tiles for heads of this size, in 16 bits; plain kernels serve the rest.
constexpr bool has_tiles(int64_t size) { return size % 16 == 0 && size >= 64 && size <= 128; }

constexpr int backward_tile = 128;

// How the backward pass divides its work. A block owns a tile of keys, of all heads that share a key-value head; or,
// with the heads apart, of one of them, where dk and dv are summed over the blocks of these heads. A block for all
// heads begins and sums less often; with few key-value heads and many tiles, though, such blocks are too few and too
// long to keep a GPU busy to the end. The choice changes the order of the sums in dk and dv, and depends on nothing but
// the shape.
struct BackwardGrid {
  bool apart = false;
  HeadOrder order{};                   // orders query heads if apart, otherwise key-value heads
  int64_t dq = 0, dkv = 0, flags = 0;  // sizes of the parts of the scratch memory, in 4-byte elements

  constexpr int64_t scratch() const { return dq + dkv + flags; }
  int32_t* flags_in(float* scratch) const { return reinterpret_cast<int32_t*>(scratch + dq + dkv); }
};

// Returns the microseconds of a visit on an H100 or H200.
constexpr double visit_us(int64_t size, bool backward) {
  const double of_64 = backward ? 3.6 : 1.22, of_128 = backward ? 5.5 : 1.8;
  return of_64 + (of_128 - of_64) * static_cast<double>(size - 64) / 64;
}
constexpr double processors = 132;

// Returns about how many visits pass until the last block of the forward pass ends.
constexpr double forward_visits(int64_t heads, int64_t positions) {
  constexpr double begin = 2.2;
  const double tiles = static_cast<double>((positions + 127) / 128), blocks = static_cast<double>(heads) * tiles;
  return blocks * ((tiles + 1) / 2 + begin) / processors + tiles;
}

// The visits that a block's begin and end take, and adding dk and dv to the sums of other heads.
constexpr double backward_begin = 2.0, backward_join = 0.6;

// Returns the same for the backward pass: an even share of all visits, and the idle time while the longest blocks,
// which come last, end.
constexpr double backward_visits(int64_t heads, int64_t shared_heads, int64_t tiles, bool apart) {
  constexpr double idle = 0.48;
  const int64_t members = heads / shared_heads, each_has = apart ? 1 : members, owners = heads / each_has;
  // Blocks that start together add to dk and dv one after the other, and some wait for it.
  const double each = backward_begin + (apart ? backward_join * (1 + 0.4 * static_cast<double>(members - 1)) : 0);
  const double work = static_cast<double>(heads * tiles) * static_cast<double>(tiles + 1) / 2 +
                      each * static_cast<double>(owners * tiles);
  return work / processors + idle * static_cast<double>(each_has * tiles);
}

// heads and shared_heads: of all sequences; shared_heads, the key-value heads, divide heads. size: of a head.
constexpr HeadOrder backward_order(int64_t heads, int64_t shared_heads, int64_t positions, int64_t size, bool apart) {
  const int64_t tiles = (positions + backward_tile - 1) / backward_tile;
  // As many heads run at once as fit into 40 MB of L2 with their queries and output gradients, in 16 bits, and their
  // sums of dq; but at least eight, so that blocks wait less.
  const int64_t at_once = std::max<int64_t>(8, (int64_t{40} << 20) / (tiles * backward_tile * size * 8));
  if (apart) return head_order(heads, tiles, at_once);
  return head_order(shared_heads, tiles, std::max<int64_t>(1, at_once * shared_heads / heads));
}
constexpr BackwardGrid backward_grid(int64_t heads, int64_t shared_heads, int64_t positions, int64_t size) {
  const int64_t tiles = (positions + backward_tile - 1) / backward_tile, rows = tiles * backward_tile;
  const bool apart = heads > shared_heads && backward_visits(heads, shared_heads, tiles, true) <
                                                 backward_visits(heads, shared_heads, tiles, false);
  return {.apart = apart,
          .order = backward_order(heads, shared_heads, positions, size, apart),
          .dq = heads * rows * size,
          .dkv = apart ? 2 * shared_heads * rows * size : 0,
          .flags = (heads + shared_heads) * tiles + 1};
}

}  // namespace megalith::cuda::attention
