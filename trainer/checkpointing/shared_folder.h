// Checks before the first step that all ranks see one checkpoint folder; a failure at their first save could lose hours
// of work.
#pragma once

#include <string>

#include "trainer/session/session.h"

namespace megalith {

// Collective. Each rank writes a temporary file in the folder, which exists on rank 0. JobError if a rank does not see
// rank 0's file or cannot write there, or rank 0 does not see a rank's.
void check_all_see(const std::string& folder, const Session& session);

}  // namespace megalith
