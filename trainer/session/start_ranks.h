// Runs a launcher of ranks to its end, and keeps from it the signals that it would answer by killing them.
#pragma once

#include "trainer/session/launch_line.h"

namespace megalith {

// Starts the launcher in a session of its own, which no terminal sends signals to. What asks this process to end
// (SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2) is passed on to the launcher as `passed_on`, the first two times; after
// that it gets SIGTERM, which has it kill the ranks. A signal that is ignored, as by nohup, stays so. The launcher gets
// `passed_on` as well when this process dies. SIGUSR1 is that of ranks which save by it, and the first one is answered
// by a line on standard error, since a step may take long.
//
// A command that talks with somebody gets each Ctrl-C as SIGUSR1, however many come, and its standard input by a pipe:
// a launcher in a session of its own does not read the terminal.
//
// Returns the launcher's exit status, or 128 and the number of the signal that ended it or its ranks; where that is one
// that was passed on, of the one that came. Error: the launcher cannot be started.
int start_ranks(const LaunchLine& line, int passed_on, bool talks = false);

}  // namespace megalith
