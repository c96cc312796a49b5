// Shuffles, votes and jumps (PTX ISA, "shfl.sync", "vote.sync", "Control flow instructions").
#include "tests/ptx/lanewise.h"

namespace megalith::ptx {

namespace {
enum class Shuffle { up, down, bfly, idx };
// The lane that each takes from, and whether it lies within the segment; else its own.
template <Shuffle mode, bool tells>
void shuffle(Warp& w, const Instruction& i, uint32_t lanes) {
  constexpr int first = tells ? 2 : 1;
  uint32_t values[warp_size] = {}, inside = 0;
  each_lane(lanes, [&](int lane) { values[lane] = w.get<u32>(i, first, lane); });
  each_lane(lanes, [&](int lane) {
    const int b = static_cast<int>(w.get<u32>(i, first + 1, lane) & 31);
    const u32 c = w.get<u32>(i, first + 2, lane);
    const int clamp = static_cast<int>(c & 31), segment = static_cast<int>(c >> 8 & 31);
    const int least_lane = lane & segment, last = (lane & segment) | (clamp & ~segment);
    int from = lane;
    bool is_inside = false;
    switch (mode) {
      case Shuffle::up: from = lane - b, is_inside = from >= last; break;
      case Shuffle::down: from = lane + b, is_inside = from <= last; break;
      case Shuffle::bfly: from = lane ^ b, is_inside = from <= last; break;
      case Shuffle::idx: from = least_lane | (b & ~segment), is_inside = from <= last; break;
    }
    if (!is_inside) from = lane;
    CHECK(lanes >> from & 1, "lane {} takes from lane {}, which its mask {:#x} does not name", lane, from, lanes);
    w.set<u32>(i, 0, lane, values[from]);
    inside |= static_cast<uint32_t>(is_inside) << lane;
  });
  if (tells) w.set_predicate(i, 1, lanes, inside);
}
enum class Vote { any, all, uni, ballot };
template <Vote mode>
void vote(Warp& w, const Instruction& i, uint32_t lanes) {
  const uint32_t votes = w.predicate(i, 1) & lanes;
  const bool result = mode == Vote::any ? votes != 0 : votes == lanes || (mode == Vote::uni && votes == 0);
  if (mode == Vote::ballot) {
    each_lane(lanes, [&](int lane) { w.set<u32>(i, 0, lane, votes); });
  } else {
    w.set_predicate(i, 0, lanes, result ? ~0u : 0u);
  }
}
}  // namespace

void add_exchanges(Operations& all) {
  const auto add_shuffle = [&](const char* name, Execute plain, Execute telling) {
    add(all, name, "w=wwww", plain, Kind::masked);
    add(all, name, "wp=wwww", telling, Kind::masked);
  };
  add_shuffle("shfl.sync.up.b32", shuffle<Shuffle::up, false>, shuffle<Shuffle::up, true>);
  add_shuffle("shfl.sync.down.b32", shuffle<Shuffle::down, false>, shuffle<Shuffle::down, true>);
  add_shuffle("shfl.sync.bfly.b32", shuffle<Shuffle::bfly, false>, shuffle<Shuffle::bfly, true>);
  add_shuffle("shfl.sync.idx.b32", shuffle<Shuffle::idx, false>, shuffle<Shuffle::idx, true>);
  add(all, "vote.sync.any.pred", "p=pw", vote<Vote::any>, Kind::masked);
  add(all, "vote.sync.all.pred", "p=pw", vote<Vote::all>, Kind::masked);
  add(all, "vote.sync.uni.pred", "p=pw", vote<Vote::uni>, Kind::masked);
  add(all, "vote.sync.ballot.b32", "w=pw", vote<Vote::ballot>, Kind::masked);

  add(all, "bra bra.uni", "L", nullptr, Kind::branch);
  add(all, "ret exit", "", nullptr, Kind::end);
}

}  // namespace megalith::ptx
