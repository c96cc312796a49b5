// Summarizes the content of files for comparison: sizes, and a hash of 256 blocks of 256 KiB, evenly spaced over the
// files, with at least the first and the last block of each. That is every byte of up to 64 MiB. Token files may have
// hundreds of GB: this detects other, longer, shorter, reordered or exchanged files, but not a single flipped byte in
// them.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "data/samples/loader.h"

namespace megalith {

// Returns "N bytes, hash H" for each file, or for all together if there are more than four. If a file cannot be read,
// its error replaces them.
std::string content_of(const std::vector<std::string>& files);

// As above for a source of tokens (data/samples/sources.h), with the .idx and .mask of each token file.
std::string content_of_source(const std::string& name);

// As above for all sources of a loader.
std::string content_of_sources(const Loader& data);

}  // namespace megalith
