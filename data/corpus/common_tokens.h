// Counts tokens in prepare's token files. The files are read, not mapped, so that memory does not grow with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megalith {

// Returns the count of each id below vocab_size, on this many threads.
std::vector<int64_t> count_tokens(const std::vector<std::string>& bins, int32_t vocab_size, int threads);

// Returns at most `most` of the most frequent ids, in descending order of frequency, then ascending order of ids.
std::vector<int32_t> most_common(const std::vector<int64_t>& counts, size_t most);

}  // namespace megalith
