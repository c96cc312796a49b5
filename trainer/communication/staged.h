// A communicator for tensors in GPU memory that sends them through the host, over one for tensors in host memory. The
// host waits for every transfer: it is for several ranks on one GPU, in tests, and not for speed.
#pragma once

#include <memory>

#include "trainer/communication/communicator.h"

namespace megalith {

std::unique_ptr<Communicator> staged_communicator(std::unique_ptr<Communicator> through);

}  // namespace megalith
