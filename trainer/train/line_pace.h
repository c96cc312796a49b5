// Which steps get a line: a pure function of the steps and times that it is told.
#pragma once

#include <cstdint>
#include <optional>

namespace megalith {

class LinePace {
 public:
  // every > 0: the steps that it divides. 0: by time, a line after `least` seconds at the soonest; as a run grows old,
  // after a sixtieth of its age, and after `most` seconds at the latest.
  LinePace(int64_t every, double least, double most) : every_(every), least_(least), most_(most) {}

  // Whether a step that ends `now` seconds after the start gets a line. Times do not go back. The first that is asked
  // about does.
  bool due(int64_t step, double now);

 private:
  int64_t every_;
  double least_, most_;
  std::optional<double> last_;
};

}  // namespace megalith
