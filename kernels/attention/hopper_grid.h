// How attention's passes on Hopper divide their work by the shape, which scratch memory this takes, and how long the
// passes take about (attention_forward_hopper.cu, attention_backward_hopper.cu). All functions are pure; launches,
// plans and predictions read the same ones.
//
// A visit is a block's work on one tile of the other side. Times are those of an H100 or an H200. Their constants come
// from bench/results/h200.md by the models in bench/attention_forward_model.h and bench/attention_backward_model.h.
#pragma once

#include "kernels/attention/attention_order.h"

namespace megalith::cuda::attention {

// Returns whether there are kernels with tiles for heads of this size, in 16 bits; plain kernels serve the rest.
constexpr bool has_tiles(int64_t size) { return size % 16 == 0 && size >= 64 && size <= 128; }

// The multiprocessors of an H100 and an H200.
constexpr double processors = 132;

struct AttentionShape {
  int64_t heads, shared_heads;  // query heads and key-value heads of all sequences; shared_heads divides heads
  int64_t positions, size;      // of a sequence; of a head

  constexpr int64_t tiles(int64_t tile) const { return (positions + tile - 1) / tile; }
};

// --- The forward pass.

constexpr int forward_tile = 128;  // queries of a block
// Small heads take half the keys at a time, so that two blocks share a processor: the softmax of one, and its first and
// last copies, overlap with the products of the other.
constexpr int forward_sharing(int64_t size) { return size <= 64 ? 2 : 1; }
constexpr int forward_keys(int64_t size) { return 128 / forward_sharing(size); }

// Returns the microseconds of a visit of 128 queries and 128 keys, when a processor has all the blocks it can have.
constexpr double forward_visit_us(int64_t size) {
  return size <= 64 ? 1.14 : 1.29 + 0.32 * static_cast<double>(size - 64) / 64;
}
constexpr double forward_begin_us = 3.5;  // a block's first copies and its rounding
// Returns the microseconds of a launch and of the copies that nothing hides: the keys and values of the first heads
// come from memory at 1 TB/s.
constexpr double forward_start_us(const AttentionShape& s) {
  const int64_t first = head_order(s.heads, s.tiles(forward_tile), heads_in_l2(s.positions, s.size)).at_once;
  return 4 + static_cast<double>(first) * static_cast<double>(s.shared_heads) / static_cast<double>(s.heads) *
                 static_cast<double>(s.positions * s.size * 4) / 1e6;
}
// Returns about how many microseconds the pass takes: the longest block, or an even share of all blocks and half of a
// last one, which is short.
constexpr double forward_us(const AttentionShape& s) {
  const auto tiles = static_cast<double>(s.tiles(forward_tile));
  const double visit = forward_visit_us(s.size) * forward_sharing(s.size);
  const double share = static_cast<double>(s.heads) * tiles / (processors * forward_sharing(s.size));
  const double even = share * (forward_begin_us + visit * (tiles + 1) / 2) + 0.5 * (forward_begin_us + visit);
  return forward_start_us(s) + std::max(even, forward_begin_us + visit * tiles);
}

// --- The backward pass.

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

// Returns the microseconds of a visit of 128 keys and 128 queries.
constexpr double backward_visit_us(int64_t size) { return size <= 64 ? 3.6 : 5.5; }
// The visits that a block's begin and end take, and adding dk and dv to the sums of other heads.
constexpr double backward_begin = 2.0, backward_join = 0.6;

// Returns about how many visits pass until the last block ends: an even share of all visits, and the idle time while
// the longest blocks, which come last, end.
constexpr double backward_visits(const AttentionShape& s, bool apart) {
  constexpr double idle = 0.48;
  const int64_t tiles = s.tiles(backward_tile), members = s.heads / s.shared_heads, each_has = apart ? 1 : members;
  const int64_t owners = s.heads / each_has;
  // Blocks that start together add to dk and dv one after the other, and some wait for it.
  const double each = backward_begin + (apart ? backward_join * (1 + 0.4 * static_cast<double>(members - 1)) : 0);
  const double work = static_cast<double>(s.heads * tiles) * static_cast<double>(tiles + 1) / 2 +
                      each * static_cast<double>(owners * tiles);
  return work / processors + idle * static_cast<double>(each_has * tiles);
}

constexpr HeadOrder backward_order(const AttentionShape& s, bool apart) {
  const int64_t tiles = s.tiles(backward_tile);
  // As many heads run at once as fit into 40 MB of L2 with their queries and output gradients, in 16 bits, and their
  // sums of dq; but at least eight, so that blocks wait less.
  const int64_t at_once = std::max<int64_t>(8, (int64_t{40} << 20) / (tiles * backward_tile * s.size * 8));
  if (apart) return head_order(s.heads, tiles, at_once);
  return head_order(s.shared_heads, tiles, std::max<int64_t>(1, at_once * s.shared_heads / s.heads));
}
constexpr BackwardGrid backward_grid(const AttentionShape& s) {
  const int64_t tiles = s.tiles(backward_tile), of_head = tiles * backward_tile * s.size;
  const bool apart = s.heads > s.shared_heads && backward_visits(s, true) < backward_visits(s, false);
  return {.apart = apart,
          .order = backward_order(s, apart),
          .dq = s.heads * of_head,
          .dkv = apart ? 2 * s.shared_heads * of_head : 0,
          .flags = (s.heads + s.shared_heads) * tiles + 1};
}

}  // namespace megalith::cuda::attention
