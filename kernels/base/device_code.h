// A kernel that does nothing, compiled for every architecture of the build: by it the CUDA runtime says whether there
// is code for a GPU. Builds with CUDA only.
#pragma once

namespace megalith::device {

const void* kernel_of_build();

}  // namespace megalith::device
