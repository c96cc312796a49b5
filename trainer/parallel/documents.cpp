#include "trainer/parallel/documents.h"

#include <algorithm>

namespace megalith {

void find_documents(Tensor starts, Tensor tokens, int32_t end_of_text) {
  const int64_t T = starts.cols();
  const int32_t* token = tokens.data<int32_t>();
  int32_t* start = starts.data<int32_t>();
  for (int64_t n = 0; n < starts.numel(); n++) {
    const bool begins = n % T == 0, follows = !begins && token[n - 1] == end_of_text;
    start[n] = begins ? 0 : follows ? static_cast<int32_t>(n % T) : start[n - 1];
  }
}

void begin_documents(Tensor starts, int64_t row, const std::vector<int64_t>& places) {
  const int64_t T = starts.cols();
  int32_t* start = starts.data<int32_t>() + row * T;
  for (size_t i = 0; i < places.size(); i++)
    for (int64_t n = places[i], end = i + 1 < places.size() ? places[i + 1] : T; n < end; n++)
      start[n] = std::max(start[n], static_cast<int32_t>(places[i]));
}

}  // namespace megalith
