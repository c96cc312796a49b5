// The verdict says whether a layout fits on given machines, and warns of what makes it slow there.
#pragma once

#include <string>

#include "configs/hardware.h"
#include "trainer/planner/prediction.h"

namespace megalith {

struct Verdict {
  bool fits = true;
  std::string text;  // a line for the fullest device, one for the fullest host, and one for each warning
};

// `memory` has the peaks by rank.
Verdict verdict(const Config& config, const Hardware& hardware, const MeshShape& mesh,
                const std::vector<MemorySizes>& memory, const Prediction& prediction);

// Returns the bytes that a device needs, not counting `reserved`: its ranks' memory (on a CPU including their host
// memory) and the workspace of its libraries.
int64_t device_bytes(const Config& config, const Hardware& hardware, const MemorySizes& memory);

}  // namespace megalith
