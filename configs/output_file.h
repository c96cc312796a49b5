// A command writes what it was asked for over a file of its own kind, and over none that a run or its user
// needs.
#pragma once

#include <string>

namespace megalith {

// Error where `path`, which `option` names, is there and by its name or place is a configuration, tokens, a tokenizer,
// weights or a part of a run or checkpoint. Any other plain file is replaced once all is written, a link never
// (kernels/system/files.h).
void check_output(const std::string& option, const std::string& path);

}  // namespace megalith
