// An interpreter of PTX, the text that nvcc makes of the .cu files: a second opinion on what tests/simt, which replaces
// nvcc's side of kernels/loops/device_cuda.h, cannot see. Semantics are the PTX ISA manual's, of which comments name
// the sections; whatever is not known here (opcode, modifier, operand, directive) is an Error that names the line.
//
// How: a kernel is decoded once. The lanes of a warp go on together where they stand at one instruction, those behind
// first; a warp-wide instruction waits for the lanes of its mask, and what is .aligned for all 32; so divergence needs
// no model of reconvergence. Warps run in turn till each waits at a barrier, in one order in even blocks and the other
// way in odd ones. Functions are decoded in the place of their call. Found, beside wrong numbers:
//
//   - accesses outside an allocation of the simulated device or the launch's shared memory, misaligned ones, writes to
//     what is read-only, reads of what nobody has written;
//   - races in shared memory: two threads at one place, one of them writing, with no bar.sync between, nor within a
//     warp a bar.warp.sync;
//   - lanes, threads or warpgroups that wait for others which do not come; a bar.sync after some thread has ended;
//   - launches of other than .maxntid allows, or with other parameters than the kernel has.
//
// What is asynchronous is late: the data of cp.async is there from its wait_group on, and till then its place counts as
// unwritten; the sums of wgmma hold NaN from the product to the wait that it must be done at, when its factors are
// read. A wgmma is refused whose registers were touched after the last wgmma.fence, whose matrices were not written
// before the last barrier, or not followed there by their writer's fence.proxy.async, whose descriptor is not one of
// 128-byte swizzle, or whose threads do not agree.
//
// Limits: races between blocks, and in device memory, are for tests/simt to find. An approximate function is computed
// exactly and rounded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/simt/simt.h"

namespace megalith::ptx {

// A file of PTX.
class Module;
struct Code;

// A kernel (.entry) of a module.
struct Kernel {
  std::string name;    // demangled
  std::string header;  // parameters and directives
  std::string body;    // instructions
  int line = 0;        // where the header begins in the file, whose name is the module's
  Module* module = nullptr;
  std::shared_ptr<const Code> code = nullptr;  // decoded when it is first launched
  int64_t launches = 0;
};

class Module {
 public:
  // `name` is for messages.
  Module(std::string name, const std::string& text);
  ~Module();
  Module(Module&&) = delete;
  const std::string& name() const { return name_; }
  std::vector<Kernel>& kernels() { return kernels_; }

  struct Symbol {
    std::string space;  // global, shared; within functions also local and param
    uint64_t address = 0;
    int64_t bytes = 0, align = 1, element = 1;
    bool placed = false, dynamic = false;
  };
  struct Function {
    std::vector<std::string> results, parameters;
    std::string body;
    int line = 0;
  };
  const std::vector<std::pair<std::string, Symbol>>& symbols() const { return symbols_; }
  const Function* function(const std::string& name) const;
  // Whether these bytes are a variable or a constant of the module.
  bool holds(uint64_t address, int64_t bytes) const;

 private:
  std::string name_;
  std::vector<Kernel> kernels_;
  std::vector<std::pair<std::string, Symbol>> symbols_;
  std::vector<std::pair<std::string, Function>> functions_;
  std::vector<std::unique_ptr<uint64_t[]>> memory_;
};

// A mangled name as C++ writes it; what is none, as it is.
std::string demangled(const std::string& name);
// Runs a launch that simt::run() has checked; device memory is that of tests/simt.
void run(Kernel& kernel, const simt::Grid& grid);

}  // namespace megalith::ptx
