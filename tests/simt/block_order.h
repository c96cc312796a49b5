// Flags in device memory order the blocks of one launch: earlier ones release them, and later ones await them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tests/simt/machine.h"

namespace megalith::simt {

class BlockOrder {
 public:
  // The actor's block puts `value` into the flag at that address, and with it what the block has done and knows.
  void release(uintptr_t flag, int32_t value, const Actor& a);
  // The actor's block waits for the flag, which holds `found`, to be at_least. The wait ends as early as it may: with
  // the first release of this launch that is enough. Returns what it finds then.
  int32_t await(uintptr_t flag, int32_t found, int32_t at_least, const Actor& a);
  // Returns whether accesses of another block, at this time of its clocks, are ordered before the actor's next ones.
  bool is_known(uint32_t block, uint32_t time, const Actor& a) const;

 private:
  // A block knows this of another one that released: all accesses of that one before the time `before` are ordered
  // before the accesses of those warps of this one that know of the await, which `warp` ended at time `since`. A
  // release passes on what its block knows of others.
  struct Known {
    uint32_t before = 0, warp = 0, since = 0;
    bool to(const Actor& a) const { return since < (*a.knows)[warp]; }
  };
  struct Release {
    int32_t value = 0;
    uint32_t block = 0, before = 0;
    std::map<uint32_t, uint32_t> known;
  };

  std::map<uintptr_t, std::vector<Release>> released_;  // of each flag, in turn, since a launch first released it
  std::map<uint32_t, std::vector<Known>> known_;
  uint32_t knows_ = 0;  // the block that knows it
};

}  // namespace megalith::simt
