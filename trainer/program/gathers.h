// Adds gathers to a list that has only the uses of weights, as await_gather without a slot: the next unit's weights are
// always in transfer. Units whose gathered weights are kept have their own slots; the others share plan.live_units
// slots, and the least recently used gives way. Units with their own slots that are used before any that shares are
// gathered at the beginning of the list, while a stage waits for its first message. With `fp8`, weights of products in
// 8 bits are cast before all, and gathered in 8 bits.
#pragma once

#include "trainer/program/program.h"

namespace megalith {

Program with_gathers(const Plan& plan, const Program& uses, bool fp8);

}  // namespace megalith
