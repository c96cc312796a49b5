// Adds up the parts of the ranks on the host, always in the order of ranks, so that an element's sum does not depend on
// how a tensor is divided, on its size, or on the MPI library.
#pragma once

#include "kernels/tensor/tensor.h"
#include "trainer/communication/communicator.h"

namespace megalith {

// out (n) = the sum or maximum over the parts (r * n, for r of them) in their order; f32, f64, bf16 or f16. 16-bit
// parts are summed in f32 and rounded once. They must not overlap.
void combine_parts(Tensor out, Tensor parts, Reduce op);

}  // namespace megalith
