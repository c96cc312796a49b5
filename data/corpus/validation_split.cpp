#include "data/corpus/validation_split.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace megalith {

namespace {

constexpr int64_t longest_search = 64 << 10, longest_character = 4;

}  // namespace

bool ValidationSplit::draws(std::string_view document) const {
  const uint64_t hash = XXH3_64bits(document.data(), std::min(document.size(), hashed_bytes));
  return static_cast<double>(hash >> 11) < fraction_ * 0x1p53;
}

int64_t ValidationSplit::wanted(int64_t size) const {
  return static_cast<int64_t>(std::ceil(static_cast<double>(size) * fraction_));
}

int64_t ValidationSplit::begin(int64_t size) const {
  return std::max<int64_t>(size - wanted(size), std::min<int64_t>(size, 1));
}

int64_t ValidationSplit::search_begin(int64_t size) const {
  return std::max<int64_t>(begin(size) - std::min(wanted(size), longest_search), 1) - 1;
}

int64_t ValidationSplit::search_end(int64_t size) const { return std::min(begin(size) + longest_character, size); }

int64_t ValidationSplit::split_of(int64_t size, const Read& read) const {
  const int64_t split = begin(size), first = search_begin(size) + 1;
  std::string before(static_cast<size_t>(split - first + 1), '\0');  // the byte before each possible beginning
  read(first - 1, before.data(), static_cast<int64_t>(before.size()));
  const size_t line_end = before.rfind('\n');
  if (line_end != std::string::npos) return first + static_cast<int64_t>(line_end);

  std::string at(static_cast<size_t>(search_end(size) - split), '\0');
  read(split, at.data(), static_cast<int64_t>(at.size()));
  size_t skip = 0;
  while (skip < at.size() && (static_cast<uint8_t>(at[skip]) & 0xc0) == 0x80) skip++;
  return split + static_cast<int64_t>(skip);  // `size` if no character begins there
}

int64_t ValidationSplit::split_of(std::string_view document) const {
  return split_of(static_cast<int64_t>(document.size()), [&](int64_t offset, char* out, int64_t bytes) {
    document.copy(out, static_cast<size_t>(bytes), static_cast<size_t>(offset));
  });
}

}  // namespace megalith
