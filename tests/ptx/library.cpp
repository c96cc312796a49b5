#include "tests/ptx/library.h"

#include <fstream>
#include <iterator>
#include <sstream>

#include "kernels/system/check.h"
#include "tests/simt/symbols.h"

namespace megalith::ptx {

Library& library() {
  static Library all = [] {
    Library made;
    std::istringstream files(MEGALITH_PTX);
    for (std::string file; std::getline(files, file, ':');) {
      std::ifstream stream(file);
      CHECK(stream, "cannot open {}", file);
      const std::string text{std::istreambuf_iterator<char>(stream), {}};
      made.modules.push_back(std::make_unique<Module>(file.substr(file.rfind('/') + 1), text));
      for (Kernel& k : made.modules.back()->kernels()) {
        const auto [at, is_new] = made.kernels.emplace(k.name, &k);
        CHECK(is_new || at->second->body == k.body, "two kernels are {}", k.name);
      }
    }
    return made;
  }();
  return all;
}

void launch(const simt::Grid& grid) {
  const std::string name = demangled(simt::symbol_of(grid.function).name);
  const auto found = library().kernels.find(name);
  CHECK(found != library().kernels.end(), "nvcc has made no kernel {} (launched as {})", name, grid.kernel);
  run(*found->second, grid);
}

}  // namespace megalith::ptx
