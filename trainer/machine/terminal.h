// Describes the terminal that this process writes to, if any, and fits lines into it. mpirun gives a rank its own
// pseudo-terminal, so under mpirun the launcher's output counts.
//
// A progress bar, of this or another rank, may be on the last line. It leaves the cursor at the line's beginning.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace megalith {

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();
int terminal_columns();  // 80 if unknown

// Writes a line "megalith: ..." to standard error, over a progress bar.
void say_error(const std::string& text);

// A part of a line. In a line that is too long, the parts with the largest `drop_order` are dropped first; 0 is never
// dropped.
struct LinePart {
  std::string text;
  int drop_order = 0;
};
// Joins the parts that fit into the columns, separated by two blanks.
std::string fitted(std::vector<LinePart> parts, size_t columns);

}  // namespace megalith
