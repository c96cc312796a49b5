// Puts gathers into a list that says only where weights are used, as await_gather without a slot: the next unit's
// weights are always on their way. Units that keep what was gathered have slots of their own, the others share
// plan.live_units of them; the one that was not used for longest gives way. Those of their own that are used before any
// that shares all begin with the list, so that they come while a stage waits for its first message.
#pragma once

#include "trainer/program/program.h"

namespace megalith {

Program with_gathers(const Plan& plan, const Program& uses);

}  // namespace megalith
