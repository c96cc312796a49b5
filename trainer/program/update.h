// Lists the update of a step: how the gradient's norm comes together, the decision whether and how far weights are
// updated, and the update of each unit where its optimizer state lies. State on the host comes to the device in parts
// of the size of a layer, and goes back, through two staging buffers, so that one part is copied while the other is
// updated.
//
// Where Muon updates the layers, their matrices go in rounds (matrices.h) from their momentum to the update: while the
// owners orthogonalise one round, the momentum of the next is on its way to them, and the round before is updated.
#pragma once

#include "trainer/program/program.h"

namespace megalith {

void list_update(const Plan& plan, Program& list);

// Returns whether it is one of those instructions, which the owner of the optimizer's state obeys and not the stage.
bool is_of_update(Instruction::Op op);

}  // namespace megalith
