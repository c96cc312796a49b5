// Decides which steps get a line in the log, from steps and times only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace megalith {

class LinePace {
 public:
  // every > 0: every such step gets a line. 0: a line after a sixtieth of the run's age, within [least, most] seconds.
  LinePace(int64_t every, double least, double most) : every_(every), least_(least), most_(most) {}

  // Returns whether the step that ends `now` seconds after the start gets a line. The first one does.
  bool due(int64_t step, double now) {
    const bool by_now = every_ > 0 ? step % every_ == 0 : last_ && now - *last_ >= std::clamp(now / 60, least_, most_);
    if (last_ && !by_now) return false;
    last_ = now;
    return true;
  }

 private:
  int64_t every_;
  double least_, most_;
  std::optional<double> last_;
};

}  // namespace megalith
