// Summarizes the content of files for comparison: sizes, and a hash of 256 blocks of 256 KiB, evenly spaced over the
// files, with at least the first and the last block of each. That is every byte up to 64 MiB. Token files may have
// hundreds of GB: this detects other, longer, shorter, reordered or exchanged files, not a single flipped byte in them.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "data/samples/loader.h"

namespace megalith {

// Returns "N bytes, hash H" for each file, or of all together where they are more than four. The error of a file that
// cannot be read stands in its place.
std::string content_of(const std::vector<std::string>& files);

// Returns the same for a source of tokens (data/samples/sources.h), with the .idx and .mask of each token file.
std::string content_of_source(const std::string& name);

// Returns the same for the sources of a loader.
std::string content_of_sources(const Loader& data);

}  // namespace megalith
