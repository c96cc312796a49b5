// A model of the time of attention's backward pass on Hopper (kernels/attention/attention_backward_hopper.cu). It runs
// the blocks in the order of their tickets on 132 processors; a block visits tiles of queries and waits for the blocks
// before it. Pure. The constants were fitted to rows of bench/results/h200.md, which it meets within 8 %
// (tests/pure/attention_model_test.cpp); bench_attention_model prints its times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "kernels/attention/hopper_grid.h"

namespace megalith::bench {

struct BackwardModel {
  int processors = 132;
  double begin = cuda::attention::backward_begin;  // visits that a block's begin and end take
  double front = 0.7;  // the share of a visit before it adds to dq, at which it publishes its part of the visit before
  double join = cuda::attention::backward_join;  // visits that adding to dk and dv of other heads takes
};

// What a pass does. In passes of earlier versions a head's sums of dq had one of `rooms`, which it got when the head
// `rooms` before it was finished, and the last block of a tile rounded them, which took `rounding` visits.
struct BackwardPass {
  int64_t heads = 0, shared_heads = 0;  // query heads and key-value heads of all sequences together
  bool apart = false;
  cuda::attention::HeadOrder order{};
  int64_t rooms = 0;  // 0: one for each head
  double rounding = 0;
};

// Returns visits until the last block ends.
inline double visits_of(const BackwardPass& pass, const BackwardModel& model = {}) {
  const int64_t tiles = pass.order.tiles, members = pass.heads / pass.shared_heads, each = pass.apart ? 1 : members;
  // When a block has published its part of a tile of queries, by head, the block's tile of keys, and tile of queries.
  std::vector<double> published(static_cast<size_t>(pass.heads * tiles * tiles)), joined;
  const auto of = [&](int64_t head, int64_t keys, int64_t queries) -> double& {
    return published[static_cast<size_t>((head * tiles + keys) * tiles + queries)];
  };
  joined.resize(static_cast<size_t>(pass.heads * tiles));
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (int i = 0; i < model.processors; i++) free.push(0);
  double last = 0;
  for (int block = 0; block < pass.order.blocks(); block++) {
    const auto [owner, own] = pass.order.of(block);
    double now = free.top() + model.begin, *unpublished = nullptr;
    free.pop();
    const auto publish = [&](double when) {
      if (unpublished) *unpublished = when;
    };
    for (int64_t head = owner * each; head < (owner + 1) * each; head++)
      for (int64_t i = own; i < tiles; i++) {
        double adds = now + model.front;
        publish(adds);
        if (i > own) adds = std::max(adds, of(head, own + 1, i));
        if (i == own && pass.rooms > 0 && head >= pass.rooms) adds = std::max(adds, of(head - pass.rooms, 0, i));
        now = adds + 1 - model.front + (own == 0 ? pass.rounding : 0);
        unpublished = &of(head, own, i);
      }
    publish(now);
    if (pass.apart && members > 1) {
      if (owner % members > 0) now = std::max(now, joined[static_cast<size_t>((owner - 1) * tiles + own)]);
      now = joined[static_cast<size_t>(owner * tiles + own)] = now + model.join;
    }
    free.push(now);
    last = std::max(last, now);
  }
  return last;
}

using cuda::attention::AttentionShape;

// Returns the pass that the kernel makes of a shape.
inline BackwardPass pass_of(const AttentionShape& s) {
  const auto grid = cuda::attention::backward_grid(s);
  return {.heads = s.heads, .shared_heads = s.shared_heads, .apart = grid.apart, .order = grid.order};
}
// Returns the pass with the other choice for heads that share keys.
inline BackwardPass other_pass_of(const AttentionShape& s) {
  BackwardPass pass = pass_of(s);
  pass.apart = !pass.apart;
  pass.order = cuda::attention::backward_order(s, pass.apart);
  return pass;
}
// Returns the pass of the versions that the H100 and the H200 measured: all heads of a group in a block, as many rooms
// as fit into 32 MiB.
inline BackwardPass earlier_pass_of(const AttentionShape& s) {
  const int64_t tiles = s.positions / 128, flags = (s.heads * tiles + 1) * 4;
  const int64_t rooms = ((int64_t{32} << 20) - (flags + 255) / 256 * 256) / (s.positions * s.size * 4);
  const int64_t at_once = (rooms >= s.heads ? s.heads : std::max<int64_t>(1, rooms / 3)) * s.shared_heads / s.heads;
  return {.heads = s.heads,
          .shared_heads = s.shared_heads,
          .order = cuda::attention::head_order(s.shared_heads, tiles, std::max<int64_t>(1, at_once)),
          .rooms = rooms,
          .rounding = 0.5};
}

// Returns the microseconds of rounding dq at 4 TB/s.
constexpr double rounding_us(const AttentionShape& s) {
  return 3 + 1.1 * static_cast<double>(s.heads * s.positions * s.size) * 6 / 4e6;
}

}  // namespace megalith::bench
