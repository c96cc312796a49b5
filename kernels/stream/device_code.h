// An empty kernel, compiled for every architecture of the build: through it the CUDA runtime says whether the build has
// code for a GPU. Builds with CUDA only.
#pragma once

namespace megalith::device {

const void* kernel_of_build();

}  // namespace megalith::device
