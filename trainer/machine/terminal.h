// The terminal that the output of this process is read on, if it is, and how much of a line has room there. mpirun
// gives a rank a pseudo-terminal of its own, wherever its own output goes; below one it is the launcher's output that
// counts.
//
// A progress bar may stand on the last line, of this process or of another rank. It leaves the cursor at its beginning.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace megalith {

bool stdout_is_terminal();
bool stderr_is_terminal();
int terminal_columns();  // 80 where nobody says

// A line of standard error, "megalith: ...", in the place of a bar where there is one.
void say_error(const std::string& text);

// A part of a line, and when it is left out of one that is too long: those of the largest `leaves` go first, those of 0
// stay.
struct LinePart {
  std::string text;
  int leaves = 0;
};
// The parts that fit into so many columns together, two blanks apart, in their order.
std::string fitted(std::vector<LinePart> parts, size_t columns);

}  // namespace megalith
