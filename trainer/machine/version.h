// Which Megalith this is.
#pragma once

namespace megalith {

// "megalith 0.1.0, commit 0123456789ab", ", with changes" where files of it were changed; the commit is "unknown" where
// the sources lie in no git tree. Written at each build by commit.cmake, so that a commit compiles this alone.
const char* version();

}  // namespace megalith
