// Runs a launcher of ranks to its end, and shields it from signals to which it would respond by killing them.
#pragma once

#include "trainer/session/launch_line.h"

namespace megalith {

// Starts the launcher in its own session, to which no terminal sends signals. Signals that ask this process to end
// (SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2) are passed on to the launcher as `passed_on`, the first two times; after
// that it gets SIGTERM, upon which it kills the ranks. An ignored signal, as under nohup, stays ignored. The launcher
// also gets `passed_on` when this process dies. `passed_on` is SIGUSR1 for ranks that save upon it; the first one is
// answered by a line on standard error, since a step may take long.
//
// A command with a dialogue gets every Ctrl-C as SIGUSR1, and its standard input through a pipe: a launcher in its own
// session does not read the terminal.
//
// Returns the launcher's exit status, or 128 plus the number of the signal that ended it or its ranks; if that is one
// that was passed on, of the original one. Error: the launcher cannot be started.
int start_ranks(const LaunchLine& line, int passed_on, bool talks = false);

}  // namespace megalith
