// Protects files of a run or its user from being overwritten by a command's output.
#pragma once

#include <string>

namespace megalith {

// Error if `path`, given by `option`, exists and looks like a configuration, tokens, a tokenizer, weights or a part of
// a run or checkpoint. Other plain files are replaced once the new content is complete; links never are
// (kernels/system/files.h).
void check_output(const std::string& option, const std::string& path);

}  // namespace megalith
