// The names that the linker gave to what this program consists of, from its file's symbol table.
#pragma once

#include <cstdint>
#include <string>

namespace megalith::simt {

struct Symbol {
  std::string name;  // mangled; empty: there is none
  uintptr_t begin = 0;
  int64_t size = 0;
};

// The function or variable of this program, not of a shared library, that holds the address.
Symbol symbol_of(const void* p);

}  // namespace megalith::simt
