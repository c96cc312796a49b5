// An observer of the tensors that ops write or add to, scratch memory excluded. A Stream has at most one watcher. It is
// not called in the dry world, where nothing is written.
#pragma once

#include <span>

#include "kernels/tensor/tensor.h"

namespace megalith {

class OpWatcher {
 public:
  virtual ~OpWatcher() = default;
  // In the cuda world the op may not have run yet, but a download launched here waits for it. Ops launched here count
  // too.
  virtual void launched(const char* name, std::span<const Tensor> written) = 0;
};

}  // namespace megalith
