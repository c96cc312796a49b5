// What RUN/log.txt says of how a run went: its last line and its warnings.
#pragma once

#include <string>
#include <vector>

namespace megalith {

struct RunLog {
  // done: all its steps are made; ended: it says why; open: it goes on, or nothing was left to say how it ended;
  // unknown: there is no log that can be read.
  enum class End { unknown, open, ended, done };
  End end = End::unknown;
  std::string words;                  // the last line, if it says how the run ended, without the time of day
  std::vector<std::string> warnings;  // of all starts, in their order, each with the time of day
};

RunLog read_run_log(const std::string& path);

}  // namespace megalith
