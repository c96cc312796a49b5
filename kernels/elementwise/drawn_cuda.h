// The part of a Dropout mask that changes with the microbatch: kernel arguments or, in a replayed launch, device memory
// (Dropout::drawn).
#pragma once

#include "kernels/elementwise/dropout.h"
#include "kernels/loops/device_cuda.h"

namespace megalith::cuda {

struct Drawn {
  uint64_t key = 0, first_row = 0;
  const int32_t* memory = nullptr;
  int32_t site = 0;

  Drawn() = default;
  explicit Drawn(const Dropout& d) : first_row(static_cast<uint64_t>(d.first_row)), site(d.site) {
    if (d.drawn.empty()) {
      key = dropout_key(d);
    } else {
      memory = d.drawn.data<int32_t>();
    }
  }

  // Reads the device memory, if the mask has any.
  __device__ void read() {
    if (!memory) return;
    first_row += drawn_number(memory, 0);
    key = drawn_number(memory, 1 + site);
  }
};

}  // namespace megalith::cuda
