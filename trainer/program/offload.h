// Offload of activations (ZeRO-Offload's idea, Ren et al., arXiv 2101.06840, for what layers keep): puts copies to the
// host and back into a list that keeps the inputs of recomputed groups on the device.
//
// The inputs then take turns in horizon + 1 residuals, or one more where they come from another stage, however many
// layers and microbatches there are: the one that a group works on, and those of the groups up to `horizon` ahead in
// the list, on their way back or just written. What is written goes to the host at once, beside the work that reads it.
// An input that is never put out of its residual before it is used last is not copied at all.
#pragma once

#include <vector>

#include "trainer/program/program.h"

namespace megalith {

// `kept`: by number, whether the residual is one whose content a group's backward pass needs. Residuals of the returned
// list are numbered anew.
Program with_offload(const Program& list, const std::vector<bool>& kept, int64_t horizon);

}  // namespace megalith
