// The readers of files that may come from anywhere are functions of the file's bytes here. Each either reads them or
// throws megalith::Error: anything else that it throws, and a crash, is a fault.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megalith::fuzz {

struct Target {
  std::string name;                // of the folder under tests/fuzz/seeds
  bool (*read)(std::string_view);  // false: refused, by an Error
};

const std::vector<Target>& targets();
const Target& target(std::string_view name);  // Error: there is none of that name

// The files of tests/fuzz/seeds/NAME, by name.
std::vector<std::string> seeds_of(const Target& target);

}  // namespace megalith::fuzz
