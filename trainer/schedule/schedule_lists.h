// This is what make_schedules puts schedules together from. Lists are those of all stages, in their order.
#pragma once

#include <limits>

#include "trainer/schedule/schedule.h"

namespace megalith {

using Actions = std::vector<Action>;

constexpr int64_t never = std::numeric_limits<int64_t>::max();  // on a clock

// Makes the lists of 1f1b or gpipe, of forwards and whole backwards.
std::vector<Actions> whole_backward_lists(const PipelineShape& shape);

// Makes the lists of zb_v or v_half, of forwards and backwards, which are to become halves for inputs; and the forwards
// of a V alone, for one stage.
std::vector<Actions> v_lists(const PipelineShape& shape);
Actions v_forwards(const PipelineShape& shape, int64_t stage);

// Puts the halves for weights into lists of forwards and backwards, which become halves for inputs.
std::vector<Actions> with_weight_halves(const PipelineShape& shape, const std::vector<Actions>& lists);

// Groups of so many microbatches pass one chunk after the other.
Actions in_groups(Action::Kind kind, const std::vector<int64_t>& groups, int64_t virtual_stages);

// The same in groups of one size. The last is filled up with microbatches that do not exist: an order made for full
// groups stays free of deadlock when they are left out of it, while one made for the incomplete group itself is not
// (2 stages of 3 chunks, 3 microbatches).
Actions in_groups(Action::Kind kind, const PipelineShape& shape, int64_t group);
Actions only_existing(Actions actions, int64_t microbatches);

}  // namespace megalith
