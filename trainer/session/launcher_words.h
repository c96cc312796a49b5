// Filters standard error of Open MPI's launcher, which repeats there what its ranks have said.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

// The launcher writes messages of its own between two lines of dashes. Those that say that a rank ended with a status
// other than 0 are left out, since the rank has said why, and so are its remarks of a line that it forwards a signal or
// found a rank gone; all others, such as that a rank was killed or could not be started, are passed on.
class LauncherWords {
 public:
  // Returns what is passed on now of these bytes and of those that were held back.
  std::string pass(std::string_view bytes);
  // Returns what is held back still, once nothing more comes.
  std::string rest();

 private:
  std::string line(const std::string& line);

  std::string partial_;  // a line that has not ended and may be the launcher's
  std::string message_;  // between dashes, or empty
};

}  // namespace megalith
