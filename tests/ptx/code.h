// A decoded kernel, and the table of the instructions that are known.
//
// Registers are columns of 32 lanes in units of 128 bytes: one unit for 16 and 32 bits, two for 64, and for a predicate
// one, of which the first word has a bit for every lane. Constants and special registers are registers as well.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/ptx/ptx.h"

namespace megalith::ptx {

struct Warp;
struct Instruction;
using Execute = void (*)(Warp&, const Instruction&, uint32_t lanes);

enum class Kind : uint8_t {
  plain,    // each lane for itself
  branch,   // to the target
  end,      // ret, exit
  masked,   // by the lanes of the mask in the last operand
  aligned,  // by all lanes of the warp
  group,    // by all threads of the warpgroup
  barrier,  // by all threads of the block
  named,    // by all lanes of the warp, which then may wait for others
};
enum class Space : uint8_t { none, generic, global, shared, local, param };

struct Operation {
  // Each operand is a letter: p predicate, w 16 or 32 bits, l 64 bits, a address, n number, L label; a digit before it
  // makes it a vector. Operands that are written stand before '='.
  std::string form;
  Execute execute;
  Kind kind = Kind::plain;
  Space space = Space::none;
};
// By opcode with all its modifiers; some have several forms.
using Operations = std::unordered_multimap<std::string, Operation>;
const Operations& operations();
// Their parts, each in the file of its name.
void add_arithmetic(Operations&);
void add_conversions(Operations&);
void add_exchanges(Operations&);
void add_memory(Operations&);
void add_matrices(Operations&);

struct Instruction {
  const Operation* operation = nullptr;
  const int* slots = nullptr;  // of its operands' registers, in order
  int num_slots = 0, num_written = 0;
  int guard = -1;  // slot of the predicate
  bool negated = false;
  int target = 0;                    // of a branch
  std::array<int64_t, 4> numbers{};  // offsets of addresses, and what an instruction has as numbers, in order
  std::array<bool, 4> wide{};        // of such an address: of 64 bits
  int line = 0;
  std::string_view text;
};

// This stands in a register from the start, in every lane or in each its own.
enum class Special : uint8_t { none, tid, ntid, ctaid, nctaid, laneid };
struct Constant {
  int slot = 0;
  bool wide = false;
  uint64_t value = 0;
  Special special = Special::none;
  int axis = 0;
};

struct Code {
  std::string text;  // what the instructions' texts lie in
  std::vector<Instruction> instructions;
  std::vector<int> slots;
  std::vector<Constant> constants;
  int units = 0;  // of registers
  int64_t parameter_bytes = 0, local_bytes = 0;
  int64_t shared_begin = 0, shared_bytes = 0;  // of variables; what the launch asks for lies behind them
  int max_threads = 0;
  bool has_products = false;  // wgmma
};
// Fails with file and line at what is not known.
std::shared_ptr<const Code> decode(const Kernel& kernel);

// Addresses. The first KiB of shared memory is the system's. Generic addresses of shared and local memory lie in
// windows where no device memory is; local and function-parameter addresses begin behind those of a kernel's
// parameters.
constexpr uint64_t shared_start = 1024, local_start = uint64_t{1} << 20;
constexpr uint64_t shared_window = uint64_t{1} << 56, local_window = uint64_t{1} << 57;

}  // namespace megalith::ptx
