// Where ranks have parted ways: the calls of one number that are not the same call on all that make it, and who among
// their ranks is to blame.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "trainer/session/known_rank.h"

namespace megalith {

// Ranks, and the call of each.
using CallsOfRanks = std::vector<std::pair<int, const KnownCall*>>;

// Whether two ranks' calls of one number can be one transfer: a send's other end is a recv.
bool agree(const KnownCall& a, const KnownCall& b);

// Of the calls of one number that do not agree, the earliest: empty where all do.
CallsOfRanks first_mismatch(const std::vector<KnownRank>& known);

// Where a rank's calls of a step leave those of its step before. What it told the others in the session is not looked
// at, which differs from step to step.
struct Deviation {
  const KnownCall* did = nullptr;  // null: the step ended
  const KnownCall* expected = nullptr;
  bool skipped = false;  // it did what came after the expected
};
std::optional<Deviation> deviation(const KnownRank& rank);

// Of `ranks`, which have parted ways into `parties`, those to blame: the ones that deviate from their step before; if
// that is none or all, the smallest party, where it is less than half; else those that are a step ahead. Empty where
// nobody can say.
std::vector<int> who_left(const std::vector<KnownRank>& known, const std::vector<int>& ranks,
                          const std::vector<std::vector<int>>& parties);

}  // namespace megalith
