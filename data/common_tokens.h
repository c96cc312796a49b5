// How often each token stands in token files that prepare wrote. They are read, not mapped, so that the memory taken
// does not grow with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megalith {

// Of each id below vocab_size, by so many threads.
std::vector<int64_t> count_tokens(const std::vector<std::string>& bins, int32_t vocab_size, int threads);

// The ids that occur most, at most so many, the most frequent first; of equally frequent ones the smaller.
std::vector<int32_t> most_common(const std::vector<int64_t>& counts, size_t most);

}  // namespace megalith
