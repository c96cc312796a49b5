// The parts from which make_schedules builds schedules. Lists are those of all stages, in their order.
#pragma once

#include <limits>

#include "trainer/schedule/schedule.h"

namespace megalith {

using Actions = std::vector<Action>;

constexpr int64_t never = std::numeric_limits<int64_t>::max();  // on a clock

// Returns the lists of 1f1b or gpipe, of forwards and whole backwards.
std::vector<Actions> whole_backward_lists(const PipelineShape& shape);

// Returns the lists of zb_v or v_half, of forwards and of backwards, which will become input halves; and only the
// forwards of a V, for one stage.
std::vector<Actions> v_lists(const PipelineShape& shape);
Actions v_forwards(const PipelineShape& shape, int64_t stage);

// Adds weight halves to lists of forwards and backwards, which become input halves.
std::vector<Actions> with_weight_halves(const PipelineShape& shape, const std::vector<Actions>& lists);

// Returns an order in which groups of this many microbatches pass one chunk after the other.
Actions in_groups(Action::Kind kind, const std::vector<int64_t>& groups, int64_t virtual_stages);

// As above in groups of one size. The last is filled up with microbatches that do not exist. An order made for full
// groups stays free of deadlock when they are left out, while one made for the incomplete group does not (2 stages of 3
// chunks, 3 microbatches).
Actions in_groups(Action::Kind kind, const PipelineShape& shape, int64_t group);
Actions only_existing(Actions actions, int64_t microbatches);

}  // namespace megalith
