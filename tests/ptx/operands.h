// An instruction's operands, and whether they are of an operation's form (PTX ISA, "Instruction operands").
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "tests/ptx/ptx.h"

namespace megalith::ptx {

struct Operand {
  // As in Operation::form; '#' an integer, 'f' and 'd' numbers of 32 and 64 bits, 'A' an address of 64 bits, 'S' that
  // of a shared variable, 'G' of another.
  char kind;
  int slot = -1;
  uint64_t value = 0;                // of a number, or the address's offset
  Module::Symbol* symbol = nullptr;  // of an address or an address's base
  std::string label;
};
struct Group {
  bool vector = false;
  std::vector<Operand> operands;
};

inline bool fits(char wanted, char given, bool written) {
  if (wanted == given) return true;
  if (written) return false;
  switch (wanted) {
    case 'w': return given == '#' || given == 'f' || given == 'S';
    case 'l': return given == '#' || given == 'd' || given == 'S' || given == 'G';
    case 'p': return given == '#';
    case 'a': return given == 'A';
    case 'n': return given == '#';
    default: return false;
  }
}
// Letter by letter; a digit stands for a vector of so many.
inline bool matches(std::string_view form, const std::vector<Group>& groups) {
  size_t g = 0;
  bool written = form.find('=') != std::string_view::npos;
  for (size_t f = 0; f < form.size(); f++) {
    if (form[f] == '=') {
      written = false;
      continue;
    }
    size_t count = 0;
    while (std::isdigit(static_cast<unsigned char>(form[f]))) count = count * 10 + static_cast<size_t>(form[f++] - '0');
    if (g == groups.size() || groups[g].vector != (count > 0)) return false;
    if (groups[g].operands.size() != std::max<size_t>(count, 1)) return false;
    for (const Operand& o : groups[g].operands)
      if (!fits(form[f], o.kind, written)) return false;
    g++;
  }
  return g == groups.size();
}

}  // namespace megalith::ptx
