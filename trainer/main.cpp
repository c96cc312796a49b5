// The program megalith: opens the session, runs the command and reports errors.
#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>

#include "kernels/system/files.h"
#include "kernels/system/long_work.h"
#include "kernels/system/process_limits.h"
#include "trainer/commands/command_line.h"
#include "trainer/job/agreement.h"
#include "trainer/log/log.h"
#include "trainer/machine/console.h"
#include "trainer/machine/machine.h"
#include "trainer/machine/terminal.h"
#include "trainer/session/open_session.h"
#include "trainer/session/signal_watch.h"
#include "trainer/session/single_rank.h"
#include "trainer/train/progress_bar.h"

namespace megalith {
namespace {

int run(const CommandLine& line, const Session& session) {
  WorkBar bar;
  if (session.rank() == 0) show_long_work(&bar);
  try {
    int status = 1;
    try {
      status = line.run(session);
      together(session, [&] {
        CHECK(std::fflush(stdout) == 0 && !std::ferror(stdout), "cannot write all of the output: {}; is the disk full?",
              std::strerror(errno));
        // A training continues without a reader; the output of other commands is their result.
        if (const std::string lost = standard_output_error(); !line.handles_signals())
          CHECK(lost.empty(), "cannot write all of the output: {}", lost);
      });
    } catch (const JobError& e) {  // on all ranks
      if (session.rank() == 0) {
        say_error(e.what());
        log_ended(e.what());
      }
      status = 1;
    }
    // mpirun ends a job when one rank ends with an error, so wait until rank 0 has printed.
    session.broadcast_text("printed");
    return status;
  } catch (const Error& e) {
    say_error(fmt::format("rank {}: {} ({}:{})", session.rank(), e.what(), e.file(), e.line()));
    log_ended(fmt::format("rank {}: {}", session.rank(), e.what()));
  } catch (const std::exception& e) {
    say_error(fmt::format("rank {}: {}", session.rank(), message_in_words(e)));
    log_ended(fmt::format("rank {}: {}", session.rank(), message_in_words(e)));
  }
  session.abort(1);
  return 1;  // not reached
}

}  // namespace
}  // namespace megalith

int main(int argc, char** argv) {
  megalith::open_standard_descriptors();
  megalith::share_heap_under_limit();
  // Makes a limit on file sizes an error of the write instead of a silent death.
  std::signal(SIGXFSZ, SIG_IGN);
  // Open MPI 4's mpirun may wait forever for a rank that ends before MPI_Init returns. So signals are held until then
  // or, in a command that handles signals, until it does. They are not held while ranks wait for one another in a
  // folder, which may take long.
  std::optional<megalith::Uninterrupted> starting(std::in_place);
  const megalith::CommandLine line(argc, argv);
  std::unique_ptr<megalith::Session> session;
  try {
    if (line.handles_signals()) {
      megalith::ignore_broken_pipes();
      megalith::outlive_launcher();
    }
    megalith::check_stack();
    if (!line.communication().rendezvous.empty()) starting.reset();
    session = line.starts_ranks() ? std::make_unique<megalith::SingleRank>()
                                  : megalith::open_session(line.communication(), &argc, &argv);
    if (!line.handles_signals()) starting.reset();
  } catch (const std::exception& e) {
    megalith::say_error(megalith::message_in_words(e));
    return 1;
  }
  return megalith::run(line, *session);
}
