#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/simt/simt.h"

namespace megalith::simt {

namespace {
bool in_grid_order = false;
uint32_t launches = 0;
}  // namespace

InGridOrder::InGridOrder() : before_(std::exchange(in_grid_order, true)) {}
InGridOrder::~InGridOrder() { in_grid_order = before_; }

void each_block(const Grid& grid, const std::function<void(dim3 index)>& start) {
  const dim3& size = grid.blocks;
  std::vector<uint64_t> order(uint64_t{size.x} * size.y * size.z);
  std::iota(order.begin(), order.end(), 0);
  if (!in_grid_order) std::shuffle(order.begin(), order.end(), std::mt19937(launches++));
  const auto narrow = [](uint64_t n) { return static_cast<unsigned>(n); };
  for (const uint64_t n : order) start({narrow(n % size.x), narrow(n / size.x % size.y), narrow(n / size.x / size.y)});
}

}  // namespace megalith::simt
