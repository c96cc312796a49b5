#include "trainer/step/process_memory.h"

#include <algorithm>
#include <map>
#include <set>

#include "kernels/system/units.h"

namespace megalith {

namespace {

constexpr int64_t huge_page = 2 * MiB;

// As in mpi.cpp: a reduce_scatter takes as much as its input; a sum of two ranks, or of few elements, what all ranks
// send; any other sum as much as its input. Of scatters to some members, it is this rank's turn in one of those that
// make up the whole.
int64_t sum_bytes(const TraceEvent& begin, int size, bool is_turn) {
  constexpr int64_t small = int64_t{1} << 16;
  if (begin.transfer == Transfer::reduce_scatter) return begin.bytes;
  if (begin.transfer == Transfer::reduce_scatter_to) return is_turn ? begin.bytes / begin.peer * size : 0;
  if (begin.transfer != Transfer::all_reduce) return 0;
  return size == 2 || begin.bytes <= small ? size * begin.bytes : begin.bytes;
}

// The memory for sums is kept: each takes the smallest free piece that is large enough, or else a new one replaces the
// largest free piece.
int64_t kept_for_sums(const MeshShape& mesh, int rank, const std::vector<TraceEvent>& step) {
  std::multiset<int64_t> free;
  std::map<int32_t, int64_t> taken;
  int64_t all = 0, most = 0;
  int first = 0;  // first of the members that get parts in the next such scatter
  for (const TraceEvent& event : step) {
    if (event.kind == TraceEvent::Kind::wait) {
      if (const auto piece = taken.find(event.id); piece != taken.end()) {
        free.insert(piece->second);
        taken.erase(piece);
      }
      continue;
    }
    if (event.kind != TraceEvent::Kind::begin || event.channel < 0 || event.channel == host_channel) continue;
    const MeshShape::Position place = mesh.position(rank, static_cast<Channel>(event.channel));
    const bool is_turn = first <= place.index && place.index < first + event.peer;
    if (event.transfer == Transfer::reduce_scatter_to) first = (first + event.peer) % place.size;
    const int64_t bytes = sum_bytes(event, place.size, is_turn);
    if (bytes == 0) continue;
    auto fits = free.lower_bound(bytes);
    if (fits == free.end()) {
      if (!free.empty()) {
        all -= *std::prev(free.end());
        free.erase(std::prev(free.end()));
      }
      fits = free.insert(bytes);
      all += bytes;
      most = std::max(most, all);
    }
    taken[event.id] = *fits;
    free.erase(fits);
  }
  return most;
}

}  // namespace

std::vector<std::pair<const char*, int64_t>> ProcessMemory::parts() const {
  return {{"program", program}, {"heap", heap}, {"sums", sums}, {"save buffers", save}, {"MPI", mpi}};
}

ProcessMemory process_memory(const MeshShape& mesh, int rank, const std::vector<TraceEvent>& step, int64_t saved,
                             int threads) {
  ProcessMemory memory{.program = 24 * MiB, .heap = (6 + 3 * int64_t{threads}) * MiB};
  memory.save = std::min(save_buffers, (saved + huge_page - 1) / huge_page * huge_page);
  if (mesh.size() == 1) return memory;
  memory.sums = kept_for_sums(mesh, rank, step);
  const int64_t on_node = mesh.ranks_per_node > 0 ? std::min(mesh.ranks_per_node, mesh.size()) : mesh.size();
  memory.mpi = 8 * MiB + on_node * MiB / 4;
  return memory;
}

}  // namespace megalith
