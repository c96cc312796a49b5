#include "trainer/train/line_pace.h"

#include <algorithm>

namespace megalith {

bool LinePace::due(int64_t step, double now) {
  const bool by_now = every_ > 0 ? step % every_ == 0 : last_ && now - *last_ >= std::clamp(now / 60, least_, most_);
  if (last_ && !by_now) return false;
  last_ = now;
  return true;
}

}  // namespace megalith
