// A file's text to a module, and names as C++ writes them (PTX ISA, "Directives").
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "tests/ptx/reader.h"

namespace megalith::ptx {

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         std::free);
  return status == 0 ? text.get() : name;
}

Module::Module(std::string name, const std::string& text) : name_(std::move(name)) {
  Reader r(name_, text, 1);
  while (!r.done()) {
    std::string_view word = r.word(true);
    if (word == ".version" || word == ".target" || word == ".address_size") {
      const std::string_view value = r.word(true);
      if (word == ".address_size" && value != "64") r.fail_here("addresses of other than 64 bits");
      continue;
    }
    while (word == ".visible" || word == ".extern" || word == ".weak") word = r.word(true);
    if (word == ".entry") {
      Kernel k;
      k.name = demangled(std::string(r.word()));
      k.line = r.line();
      k.module = this;
      const size_t begin = r.at();
      r.until('{');
      k.header = r.from(begin);
      k.body = r.braced();
      kernels_.push_back(std::move(k));
    } else if (word == ".func") {
      Function f;
      if (r.peek() == '(') f.results = names(parameters(r));
      const std::string function_name(r.word());
      f.parameters = names(parameters(r));
      if (r.take(';')) continue;
      f.line = r.line();
      f.body = r.braced();
      functions_.emplace_back(function_name, std::move(f));
    } else if (word == ".shared" || word == ".global") {
      auto [symbol_name, symbol] = declaration(r, word.substr(1));
      if (word == ".global") {
        memory_.push_back(std::make_unique<uint64_t[]>(static_cast<size_t>(symbol.bytes) / 8 + 3));
        symbol.address = aligned_up(reinterpret_cast<uint64_t>(memory_.back().get()), symbol.align);
        if (symbol.align > 16) r.fail_here("a variable of more than 16 bytes' alignment");
        if (r.take('=')) {
          r.expect('{');
          auto* to = reinterpret_cast<unsigned char*>(symbol.address);
          for (int64_t i = 0; !r.take('}'); i++) {
            if (symbol.element != 1 || i == symbol.bytes) r.fail_here("unknown form of values");
            to[i] = static_cast<unsigned char>(r.integer());
            r.take(',');
          }
        }
        symbol.placed = true;
      }
      r.expect(';');
      symbols_.emplace_back(symbol_name, symbol);
    } else {
      r.fail_here(fmt::format("unknown directive {}", word));
    }
  }
}
Module::~Module() = default;

const Module::Function* Module::function(const std::string& name) const {
  for (const auto& [of, f] : functions_)
    if (of == name) return &f;
  return nullptr;
}
bool Module::holds(uint64_t address, int64_t bytes) const {
  return std::any_of(symbols_.begin(), symbols_.end(), [&](const auto& named) {
    const Symbol& s = named.second;
    return s.space == "global" && address >= s.address &&
           address + static_cast<uint64_t>(bytes) <= s.address + static_cast<uint64_t>(s.bytes);
  });
}

}  // namespace megalith::ptx
