// Filters standard error of Open MPI's launcher, which repeats there what its ranks have reported.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

// The launcher writes its own messages between two lines of dashes. Those about a rank that ended with a status other
// than 0 are removed, since the rank has reported why. So are its one-line remarks that it forwards a signal or that a
// rank is gone. All others, such as that a rank was killed or could not be started, are passed on.
class LauncherWords {
 public:
  // Returns the part of these bytes, and of those held back, that can be passed on now.
  std::string pass(std::string_view bytes);
  // Returns the bytes still held back, at the end.
  std::string rest();

 private:
  std::string line(const std::string& line);

  std::string partial_;  // an unfinished line that may be the launcher's
  std::string message_;  // between dashes, or empty
};

}  // namespace megalith
