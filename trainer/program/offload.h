// Activation offload (ZeRO-Offload's idea, Ren et al., arXiv 2101.06840, for the tensors that layers keep): adds copies
// to the host and back to a list that keeps the inputs of recomputed groups on the device.
//
// The inputs then share horizon + 1 residuals, or one more if they come from another stage, however many layers and
// microbatches there are: the one that a group works on, and those of up to `horizon` later groups in the list, in
// transfer from the host or just written. An input is copied to the host as soon as it is written, overlapped with the
// work that reads it. An input that stays in its residual until its last use is not copied at all.
#pragma once

#include <vector>

#include "trainer/program/program.h"

namespace megalith {

// `kept`: for each residual, whether a group's backward pass needs its content. Residuals of the returned list are
// renumbered.
Program with_offload(const Program& list, const std::vector<bool>& kept, int64_t horizon);

}  // namespace megalith
