// The modules of this build, and launches by the address of what simt has of a kernel.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/ptx/ptx.h"

namespace megalith::ptx {

// The PTX of every .cu file, by names of kernels. What stands in a header is in several
// modules, and must be the same in all; else two of one name are an Error.
struct Library {
  std::vector<std::unique_ptr<Module>> modules;
  std::map<std::string, Kernel*> kernels;
};
Library& library();

// An Executor of simt.h: finds the kernel by its C++ name, and runs it.
void launch(const simt::Grid& grid);

}  // namespace megalith::ptx
