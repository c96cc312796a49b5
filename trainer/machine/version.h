// Names the version of this program.
#pragma once

namespace megalith {

// Returns "megalith 0.1.0, commit 0123456789ab", followed by ", with changes" where its files were changed; the commit
// is "unknown" outside a git tree. commit.cmake writes the definition, so that a commit compiles this alone.
const char* version();

}  // namespace megalith
