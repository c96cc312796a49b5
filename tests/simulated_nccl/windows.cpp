#include "tests/simulated_nccl/windows.h"

#include <algorithm>
#include <map>
#include <set>

#include "tests/simt/simt.h"
#include "tests/simulated_nccl/faults.h"

namespace megalith::simulated_nccl {

namespace {

ncclResult_t wrong(ncclResult_t result) {
  simulated_nccl_faults()->window_errors++;
  return result;
}

// Memory from ncclMemAlloc, and how much.
std::map<const char*, size_t>& allocated() {
  static std::map<const char*, size_t> all;
  return all;
}
bool is_of_nccl(const void* memory, size_t bytes) {
  const char* const begin = static_cast<const char*>(memory);
  const auto after = allocated().upper_bound(begin);
  return after != allocated().begin() && begin + bytes <= std::prev(after)->first + std::prev(after)->second;
}

// Returns the windows of every communicator of the process.
std::set<const Windows*>& all_windows() {
  static std::set<const Windows*> all;
  return all;
}

// Returns whether all ranks have given the same numbers.
bool same_on_all(MPI_Comm ranks, std::array<int64_t, 2> mine) {
  if (ranks == MPI_COMM_NULL) return true;
  std::array<int64_t, 2> least = mine, most = mine;
  MPI_Allreduce(mine.data(), least.data(), 2, MPI_INT64_T, MPI_MIN, ranks);
  MPI_Allreduce(mine.data(), most.data(), 2, MPI_INT64_T, MPI_MAX, ranks);
  return least == most;
}

}  // namespace

Windows::Windows() { all_windows().insert(this); }
Windows::~Windows() { all_windows().erase(this); }

bool Windows::overlap(const void* memory, size_t bytes) const {
  const char* const begin = static_cast<const char*>(memory);
  return std::ranges::any_of(windows_,
                             [&](const auto& w) { return begin < w->begin + w->bytes && w->begin < begin + bytes; });
}

ncclResult_t Windows::add(MPI_Comm ranks, const void* memory, size_t bytes, int flags, ncclWindow_t* window) {
  *window = nullptr;
  if (!same_on_all(ranks, {static_cast<int64_t>(bytes), flags})) return wrong(ncclInvalidArgument);
  if (!memory || bytes == 0 || flags != NCCL_WIN_COLL_SYMMETRIC) return wrong(ncclInvalidArgument);
  if (!is_of_nccl(memory, bytes) || overlap(memory, bytes)) return wrong(ncclInvalidUsage);
  Faults& faults = *simulated_nccl_faults();
  const int64_t number = added_++;
  if (faults.lost_window == number) return ncclSuccess;  // as NCCL does where it makes none
  auto made = std::make_unique<Window>(Window{static_cast<const char*>(memory), bytes, number});
  if (faults.shifted_window == number) made->begin += 16;
  *window = reinterpret_cast<ncclWindow_t>(made.get());
  windows_.push_back(std::move(made));
  return ncclSuccess;
}

ncclResult_t Windows::remove(ncclWindow_t window) {
  const auto found =
      std::ranges::find_if(windows_, [&](const auto& w) { return reinterpret_cast<ncclWindow_t>(w.get()) == window; });
  if (found == windows_.end()) return wrong(ncclInvalidArgument);
  windows_.erase(found);
  return ncclSuccess;
}

void Windows::find(const void* memory, size_t bytes, int64_t* window_and_offset) const {
  const char* const begin = static_cast<const char*>(memory);
  for (const auto& w : windows_) {
    if (begin < w->begin || begin + bytes > w->begin + w->bytes) continue;
    window_and_offset[0] = w->number;
    window_and_offset[1] = begin - w->begin;
  }
}

std::optional<Placement> Windows::of(const void* in, size_t in_bytes, const void* out, size_t out_bytes) const {
  if (!any()) return {};
  Placement at{-1, -1, -1, -1};
  if (in) find(in, in_bytes, at.data());
  if (out) find(out, out_bytes, at.data() + 2);
  Faults& faults = *simulated_nccl_faults();
  const bool all_inside = (!in || at[0] >= 0) && (!out || at[2] >= 0);
  (all_inside ? faults.symmetric : faults.outside_windows)++;
  return at;
}

}  // namespace megalith::simulated_nccl

using megalith::simulated_nccl::all_windows;
using megalith::simulated_nccl::allocated;

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  *memory =
      megalith::simt::allocate("memory of NCCL", static_cast<int64_t>(bytes), megalith::simt::Contents::unwritten);
  allocated()[static_cast<const char*>(*memory)] = bytes;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* memory) {
  const auto found = allocated().find(static_cast<const char*>(memory));
  const bool known = found != allocated().end();
  if (!known || std::ranges::any_of(all_windows(), [&](const auto* w) { return w->overlap(memory, found->second); }))
    return megalith::simulated_nccl::wrong(ncclInvalidUsage);
  allocated().erase(found);
  megalith::simt::release(memory);
  return ncclSuccess;
}
