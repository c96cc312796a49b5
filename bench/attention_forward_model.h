// A model of the time of attention's forward pass on Hopper (kernels/attention/attention_forward_hopper.cu). Pure. The
// warpgroups of one processor, cycle by cycle, give the time of a visit: a block's work on one tile of keys. Visits and
// the order of blocks give the time of the pass. It meets the rows of bench/results/h200.md within 8 %
// (tests/pure/attention_model_test.cpp); bench_attention_model prints its times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "bench/attention_rows.h"

namespace megalith::bench {

// What the two warpgroups of a block do in turns. softmax: a warpgroup begins its softmax when the other has ended its
// own, which was so in the passes that GPUs have measured. products: it enqueues products when the other has enqueued
// its own.
enum class Turns { softmax, products };

struct ForwardModel {
  double cycles_a_us = 1980;  // the highest SM clock of an H100 and an H200
  double turn = 40;           // cycles from an arrival at a barrier until the other's wait ends
  // Cycles of a warpgroup's softmax for 128 keys, alone on its processor, with all that is not hidden by products. From
  // rows of one block on a processor, between which only the number of visits differs: 64 in h100.md's first run, 112
  // and 128 in h200.md.
  double softmax_of_64 = 1415, softmax_of_128 = 1752;
  // Each other softmax on the processor makes one so much longer. From rows of 64, with two blocks on a processor.
  double beside = 0.72;

  double softmax(int64_t size) const {
    const double of_128_keys = softmax_of_64 + (softmax_of_128 - softmax_of_64) * static_cast<double>(size - 64) / 64;
    return of_128_keys * cuda::attention::forward_keys(size) / 128;
  }
};

// Returns microseconds from one visit of a block to its next, with its neighbour on the processor doing the same.
inline double visit_us(int64_t size, Turns turns, const ForwardModel& model = {}) {
  const int blocks = cuda::attention::forward_sharing(size), warpgroups = 2 * blocks;
  const double product = 64.0 * cuda::attention::forward_keys(size) * static_cast<double>(size) / 2048;
  const double alone = model.softmax(size);
  // A softmax of each block at a time; the other warpgroup's products are shorter.
  if (turns == Turns::softmax) return 2 * (alone * (1 + model.beside * (blocks - 1)) + model.turn) / model.cycles_a_us;

  enum class Does { await_turn, begin, await_scores, softmax, await_sums };
  struct Warpgroup {
    Does does = Does::await_turn;
    double left = 0;
    bool sums_done = true;
  };
  struct Product {
    size_t warpgroup;
    bool of_scores;
    double left;
  };
  std::vector<Warpgroup> all(static_cast<size_t>(warpgroups));
  std::vector<size_t> has_turn(static_cast<size_t>(blocks), 0);
  std::deque<Product> products;                                   // the tensor cores do the first
  const int uneven = 10 * warpgroups, counted = 30 * warpgroups;  // visits at first, and those that are timed
  int visits = 0, begin = 0, cycle = 0;
  for (; visits < uneven + counted; cycle++) {
    if (visits < uneven) begin = cycle;
    if (!products.empty() && --products.front().left <= 0) {
      Warpgroup& w = all[products.front().warpgroup];
      if (products.front().of_scores) {
        w.does = Does::softmax;
        w.left = alone;
      } else {
        w.sums_done = true;
      }
      products.pop_front();
    }
    const auto softmaxes = std::ranges::count(all, Does::softmax, &Warpgroup::does);
    for (size_t i = 0; i < all.size(); i++) {
      Warpgroup& w = all[i];
      if (w.does == Does::softmax && (w.left -= 1 / (1 + model.beside * static_cast<double>(softmaxes - 1))) <= 0)
        w.does = Does::await_sums;
      if (w.does == Does::await_sums && w.sums_done) {
        w.does = Does::await_turn;
        visits++;
      }
      if (w.does == Does::await_turn && has_turn[i / 2] == i % 2) {
        w.does = Does::begin;
        w.left = model.turn;
      }
      if (w.does == Does::begin && --w.left <= 0) {
        products.push_back({i, true, product});
        products.push_back({i, false, product});
        w.sums_done = false;
        w.does = Does::await_scores;
        has_turn[i / 2] = 1 - i % 2;
      }
    }
  }
  return static_cast<double>(cycle - begin) / counted * warpgroups / model.cycles_a_us;
}

// Returns the microseconds of a row with such visits of its blocks: each block takes the processor that is free first.
inline double forward_row_us(const AttentionRow& row, double visit) {
  namespace attention = cuda::attention;
  const attention::AttentionShape shape = row.shape();
  const auto order = attention::head_order(shape.heads, shape.tiles(attention::forward_tile),
                                           attention::heads_in_l2(shape.positions, shape.size));
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (int i = 0; i < static_cast<int>(attention::processors) * attention::forward_sharing(row.size); i++) free.push(0);
  double last = 0;
  for (int block = 0; block < order.blocks(); block++) {
    const int keys = (order.of(block).tile + 1) * attention::forward_tile;
    const double ends = free.top() + attention::forward_begin_us + visit * keys / attention::forward_keys(row.size);
    free.pop();
    free.push(ends);
    last = std::max(last, ends);
  }
  return last + attention::forward_start_us(shape);
}

}  // namespace megalith::bench
