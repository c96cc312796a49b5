// The memory of the simulated device, and what is known of every two bytes of it: who wrote and who read them last, and
// when. Accesses are checked in memory.cpp; allocations.cpp has the device's allocations.
#pragma once

#include <string>
#include <vector>

#include "tests/simt/block_order.h"
#include "tests/simt/machine.h"
#include "tests/simt/symbols.h"

namespace megalith::simt {

constexpr int64_t unit = 2, gap = 4096;
constexpr uint16_t many = 0xffff, by_host = 0xfffe, by_ticket = 0xfffd;

// Who made an access, and when.
struct Stamp {
  uint32_t block = 0, time = 0, warps = 0;  // block 0: no access; warps: a bit for each
  uint16_t thread = 0;
};
struct Cell {
  Stamp write, read;             // the last of each
  uint32_t write_published = 0;  // how often its writer had published then
};

struct Allocation {
  std::string name;
  uintptr_t begin, end;
  bool read_only;
};

struct Region {
  uintptr_t begin, end;
  Cell* cells;
  bool holds(uintptr_t p) const { return p - begin < end - begin; }
  Cell* cell(uintptr_t p) const { return cells + (p - begin) / unit; }
};

struct Memory {
  Region device, dynamic, fixed;  // of the device; of launches; the program's variables, which may be __shared__ ones
  uintptr_t shared = dynamic.begin + gap;
  int64_t shared_bytes = 0, most_shared_bytes = 0, static_bytes = 0;
  std::vector<Symbol> variables{};  // __shared__ ones that the launch has touched
  uintptr_t used = device.begin;
  std::vector<Allocation> allocations{};
  std::vector<std::vector<uint32_t>> published = std::vector<std::vector<uint32_t>>(1024);  // when, by thread
  BlockOrder order{};
  size_t last = 0;  // allocation of the last access
  int64_t accesses = 0;
};
extern Memory watched;

}  // namespace megalith::simt
