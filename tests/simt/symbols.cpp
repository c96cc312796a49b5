#include "tests/simt/symbols.h"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <map>

#include "kernels/system/check.h"
#include "kernels/system/files.h"

namespace megalith::simt {

namespace {
uintptr_t begin_of_program() {
  uintptr_t begin = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        *static_cast<uintptr_t*>(to) = info->dlpi_addr;
        return 1;  // the program itself comes first
      },
      &begin);
  return begin;
}

std::map<uintptr_t, Symbol> read_symbols() {
  const std::string file = read_file("/proc/self/exe");
  const auto at = [&]<class T>(uint64_t offset, T*) {
    T value;
    CHECK(offset + sizeof(T) <= file.size(), "/proc/self/exe ends within its headers");
    std::memcpy(&value, file.data() + offset, sizeof(T));
    return value;
  };
  const auto header = at(0, static_cast<Elf64_Ehdr*>(nullptr));
  const auto section = [&](uint32_t i) {
    return at(header.e_shoff + uint64_t{i} * header.e_shentsize, static_cast<Elf64_Shdr*>(nullptr));
  };
  const uintptr_t begin = begin_of_program();
  std::map<uintptr_t, Symbol> symbols;
  for (uint32_t i = 0; i < header.e_shnum; i++) {
    const Elf64_Shdr table = section(i);
    if (table.sh_type != SHT_SYMTAB) continue;
    const Elf64_Shdr names = section(table.sh_link);
    for (uint64_t entry = 0; entry < table.sh_size; entry += table.sh_entsize) {
      const auto s = at(table.sh_offset + entry, static_cast<Elf64_Sym*>(nullptr));
      const int type = ELF64_ST_TYPE(s.st_info);
      if ((type != STT_OBJECT && type != STT_FUNC) || s.st_shndx == SHN_UNDEF || s.st_size == 0) continue;
      symbols[begin + s.st_value] = {file.data() + names.sh_offset + s.st_name, begin + s.st_value,
                                     static_cast<int64_t>(s.st_size)};
    }
  }
  CHECK(!symbols.empty(), "/proc/self/exe has no symbol table; do not strip it");
  return symbols;
}
}  // namespace

Symbol symbol_of(const void* p) {
  static const std::map<uintptr_t, Symbol> symbols = read_symbols();
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto after = symbols.upper_bound(address);
  if (after == symbols.begin()) return {};
  const Symbol& s = std::prev(after)->second;
  return address < s.begin + static_cast<uintptr_t>(s.size) ? s : Symbol{};
}

}  // namespace megalith::simt
