// Lists the update of a step: the sum of the gradient's norm, the decision whether to update the weights and by how
// much, and the update of each unit where its optimizer state is. State on the host comes to the device in parts of the
// size of a layer, and returns, through two staging buffers, so that one part is copied while the other is updated.
//
// If Muon updates the layers, their matrices go in rounds (matrices.h) from momentum to update: while the owners
// orthogonalise one round, the momentum of the next is sent to them, and the round before is updated.
#pragma once

#include "trainer/program/program.h"

namespace megalith {

void list_update(const Plan& plan, Program& list);

// Returns whether the owner of the optimizer's state, and not the stage, executes this instruction.
bool is_of_update(Instruction::Op op);

}  // namespace megalith
