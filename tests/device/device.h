// The device that CUDA ops are tested on: the machine of tests/simt, or a GPU in tests/gpu. Each of the two has a file
// run_case.cpp with its own on_device() and no_device(); the checks, and ops_test.cpp, are the same for both.
#pragma once

#include <gtest/gtest.h>

#include "case.h"

namespace megalith::test {

// Why no case can run; empty where there is a device.
std::string no_device();
// Returns whether every later call of this process fails as well, which is CUDA's answer to a kernel that faulted.
bool device_is_lost();

// Returns what is in the arguments of a case after its op ran on the device, each argument `offset` elements behind a
// boundary of 64 bytes. What the op may not write to is watched; scratch and the workspace start with nothing of use in
// them. `c` must outlive the result. The ops choose their kernels as for `chip`: the device's own, or one before it or
// with less memory.
constexpr cuda::Chip own_chip{}, ampere{8, 163 << 10}, small_ampere{8, 99 << 10}, hopper{9, 227 << 10},
    blackwell{10, 227 << 10};
Memories on_device(const Case& c, int64_t offset, const cuda::Chip& chip = own_chip);

// Those of every argument in turn.
using Bits = std::vector<std::vector<unsigned char>>;
Bits bits_of(const Memories& memories);

// Expects what an op promises: the CPU op's tolerance, and the same bits for the same call. The first returns those it
// got, of which the second expects that they come again. A case that throws fails by its name, and only where the
// device is lost the exception goes on.
Bits agrees_with_its_twin(const Case& c, int64_t offset = 0, const cuda::Chip& chip = own_chip);
void gives_again(const Bits& bits, const Case& c);

// Attention in 16 bits may be off by this beyond tolerance(): it rounds its probabilities, and their gradients, for the
// tensor cores, half a unit of what they weigh, in sums of any sign. Where memory is not aligned for these, it does
// not.
double rounded_weights(const Case& c, const Arg& arg, int64_t offset, double largest);

// Element i of an argument may be off by this beyond that, where the device's GEMM library takes a GELU with the
// product: its run_case.cpp says where. How the library takes the tanh is not documented; the instruction that NVIDIA's
// GPUs have for it is off by 2^-11 of it (PTX ISA, tanh.approx.f32). `want`: of the twin.
double library_gelu(const Case& c, Doubles& want, const Arg& arg, int64_t i, int64_t offset);

class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_device(); !why.empty()) GTEST_SKIP() << why;
  }
};

}  // namespace megalith::test
