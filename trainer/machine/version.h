// Names the version of this program and the machines of its build.
#pragma once

namespace megalith {

// Returns "megalith 0.2.0, commit 0123456789ab", followed by ", with changes" if its files were changed; the commit is
// "unknown" outside a git tree. commit.cmake writes the definition, so that a commit recompiles only this.
const char* version();

// Returns "built for processors like that of the machine that compiled it, without GPUs, by GNU 12.2.0 on Debian
// GNU/Linux 12": the processors, the GPUs, the compiler and its system.
const char* built_for();

}  // namespace megalith
