#include "tests/simt/warp_clocks.h"

#include <algorithm>

#include "kernels/system/check.h"

namespace megalith::simt {

void WarpClocks::begin(int warps) {
  warps_ = warps;
  now_ = 1;
  for (Row& row : rows_) row.fill(1);
  barriers_.fill({});
}

std::string WarpClocks::unfinished() const {
  for (int id = 0; id < max_barriers; id++)
    if (arrived(id) > 0)
      return fmt::format("the block ends, and {} of {} threads have come to barrier {}", arrived(id), expected(id), id);
  return "";
}

WarpClocks::Row WarpClocks::common_row(int first, int count) const {
  Row least = row(first);
  for (int warp = first + 1; warp < first + count; warp++)
    for (size_t i = 0; i < least.size(); i++) least[i] = std::min(least[i], row(warp)[i]);
  return least;
}

void WarpClocks::sync_warp(int warp) {
  const auto self = static_cast<size_t>(warp);
  rows_[self][self] = ++now_;
}

void WarpClocks::sync_all() {
  now_++;
  for (Row& row : rows_) row.fill(now_);
}

uint32_t WarpClocks::come(int id, int threads, int warp, bool waits) {
  CHECK(id > 0 && id < max_barriers, "barrier {}; a named one is 1 to {}", id, max_barriers - 1);
  CHECK(threads > 0 && threads % 32 == 0 && threads <= 32 * warps_,
        "barrier {} of {} threads, expected whole warps of the block's {}", id, threads, 32 * warps_);
  Barrier& b = barriers_[static_cast<size_t>(id)];
  CHECK(b.arrived == 0 || 32 * b.expected == threads, "barrier {} of {} threads, to which others came for {}", id,
        threads, 32 * b.expected);
  const auto self = static_cast<size_t>(warp);
  b.expected = threads / 32;
  b.arrived++;
  if (waits) b.waiting |= 1u << warp;
  now_++;
  for (size_t i = 0; i < b.joined.size(); i++) b.joined[i] = std::max(b.joined[i], rows_[self][i]);
  b.joined[self] = now_;
  if (b.arrived < b.expected) return 0;
  const uint32_t waiting = b.waiting;
  for (uint32_t left = waiting; left; left &= left - 1) {
    Row& row = rows_[static_cast<size_t>(std::countr_zero(left))];
    for (size_t i = 0; i < row.size(); i++) row[i] = std::max(row[i], b.joined[i]);
  }
  b = {};
  return waiting;
}

}  // namespace megalith::simt
