// The verdict: whether a layout fits on given machines, by how much, and what of it they will not like.
#pragma once

#include <string>

#include "configs/hardware.h"
#include "trainer/planner/prediction.h"

namespace megalith {

struct Verdict {
  bool fits = true;
  std::string text;  // a line for the fullest device, one for the fullest host, and one for each warning
};

// memory: peaks by rank.
Verdict verdict(const Config& config, const Hardware& hardware, const MeshShape& mesh,
                const std::vector<MemorySizes>& memory, const Prediction& prediction);

// What a device must have beside `reserved`: all classes of its rank, or of its ranks where a node has more ranks than
// devices, and the workspace of the device's libraries. Where the device is the machine's processor, what is kept on the
// host lies in the same memory.
int64_t device_bytes(const Config& config, const Hardware& hardware, const MemorySizes& memory);

}  // namespace megalith
