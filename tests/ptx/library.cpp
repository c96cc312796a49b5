#include "tests/ptx/library.h"

#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "kernels/system/check.h"
#include "tests/simt/symbols.h"

namespace megalith::ptx {

namespace {
// A module numbers its functions, and their labels have that number: $L__BB3_7.
std::string without_function_numbers(const std::string& body) {
  static const std::regex label("L__BB[0-9]+_");
  return std::regex_replace(body, label, "L__BB_");
}
}  // namespace

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
        CHECK(is_new || without_function_numbers(at->second->body) == without_function_numbers(k.body),
              "two kernels are {}", k.name);
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
