// Whether what this process prints is read on a terminal. mpirun gives a rank a pseudo-terminal of its own, wherever
// its own output goes; below one it is the launcher's output that counts.
#pragma once

namespace megalith {

bool stdout_is_terminal();
bool stderr_is_terminal();
int terminal_columns();  // 80 where nobody says

}  // namespace megalith
