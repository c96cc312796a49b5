// What is in files, in a few words that are compared: sizes, and a hash of 256 blocks of 256 KiB, evenly spaced over
// the files, in each at least its begin and its end. That is every byte up to 64 MiB. Token files may be hundreds of
// GB; this finds other, longer, shorter, reordered or exchanged files, not a single flipped byte in them.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "data/loader.h"

namespace megalith {

// "N bytes, hash H" for each, up to four, or of all together. What is wrong with a file that cannot be read stands in
// its place: no error, whatever is found.
std::string content_of(const std::vector<std::string>& files);

// The same of a source of tokens (data/sources.h), each file with the .idx beside it.
std::string content_of_source(const std::string& name);

// Returns the same of each source of a loader, in their order.
std::string content_of_sources(const Loader& data);

}  // namespace megalith
