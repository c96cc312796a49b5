// Who looks at what ops write: of each op that a Stream has launched, its name and the tensors that it wrote, those
// that it adds to among them; scratch memory is none. A Stream has one watcher or none, and in the dry world, where
// nothing is written, it is told nothing.
#pragma once

#include <span>

#include "kernels/base/tensor.h"

namespace megalith {

class OpWatcher {
 public:
  virtual ~OpWatcher() = default;
  // In the cuda world the op may not have run yet: a download (stream.h) launched from here waits for it. What is
  // launched from here is told as well.
  virtual void launched(const char* name, std::span<const Tensor> written) = 0;
};

}  // namespace megalith
