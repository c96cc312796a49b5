// The inputs of bad_input_test.cpp.
#pragma once

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {

struct BadInputCase {
  std::string name;
  int ranks;                       // 0: without mpirun
  Args args;                       // in the folder that bad_input_test.cpp fills
  std::vector<std::string> words;  // in the message, in any order
  std::string config = {};         // of a file NAME.toml, which is used instead of config.toml
};

const std::vector<BadInputCase>& bad_input_cases();

}  // namespace megalith::e2e
