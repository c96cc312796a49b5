// That all ranks see one folder of checkpoints is shown before the first step: by their first save, hours may be lost.
#pragma once

#include <string>

#include "trainer/session/session.h"

namespace megalith {

// Collective. In the folder, which is there on rank 0, each rank leaves a file for a moment. JobError: a rank does not
// see rank 0's or cannot write there, or rank 0 does not see that of a rank.
void check_all_see(const std::string& folder, const Session& session);

}  // namespace megalith
