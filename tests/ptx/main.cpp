// Launches of the .cu files' host side, which tests/simt has compiled, go to the kernels that nvcc has compiled.
#include <gtest/gtest.h>

#include "tests/ptx/library.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  megalith::simt::executor() = megalith::ptx::launch;
  return RUN_ALL_TESTS();
}
