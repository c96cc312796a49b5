// The kinds of groups that the conformance suite holds communicators to.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/stream/stream.h"
#include "trainer/communication/communicator.h"
#include "trainer/communication/mesh.h"

namespace megalith {

using Group = std::unique_ptr<Communicator>;
struct Kind {
  std::string name;
  std::function<Group()> make;
  World world = World::cpu;  // where its tensors lie
  bool crosses = true;       // messages may cross: both ends send before they receive
};

// Those that this build and this machine have; where it has a GPU, real or simulated, one is selected.
std::vector<Kind> kinds();

inline int num(Channel channel) { return static_cast<int>(channel); }

}  // namespace megalith
