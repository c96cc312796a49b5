// See command_line.h.
#include <algorithm>

#include "trainer/commands/command_line.h"
#include "trainer/job/agreement.h"
#include "trainer/session/machine.h"

namespace megalith {

CommandLine::CommandLine(int argc, char** argv) {
  cli_.require_subcommand(0, 1);  // so that the error names an unknown one, see below
  commands_ = {train_command(cli_),    verify_command(cli_),  prepare_command(cli_), plan_command(cli_),
               search_command(cli_),   measure_command(cli_), info_command(cli_),    generate_command(cli_),
               evaluate_command(cli_), report_command(cli_)};
  for (Command& command : checkpoint_commands(cli_)) commands_.push_back(std::move(command));
  try {
    cli_.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    stop_ = e;
  }
}

CommunicationConfig CommandLine::communication() const {
  const Command* chosen = stop_ ? nullptr : parsed();
  return chosen && chosen->communication ? chosen->communication() : CommunicationConfig{};
}

int CommandLine::run(const Session& session) const {
  const bool help = stop_ && stop_->get_exit_code() == 0;
  together(session, [&] {
    if (stop_ && !help) FAIL("{}; see megalith --help", stop_->what());
    CHECK(help || parsed(), "no command given; see megalith --help");
  });
  // Different commands communicate differently, and would wait for one another forever.
  const std::string command = help ? "--help" : cli_.get_subcommands().front()->get_name();
  const std::string of_rank_0 = session.broadcast_text(command);
  together(session, [&] {
    CHECK(command == of_rank_0, "the command is {}, but {} on rank 0; start every rank with the same command", command,
          of_rank_0);
  });
  if (!help && parsed()->on_all_ranks) return parsed()->on_all_ranks(session);
  int status = 0;
  together(session, [&] {
    if (session.rank() != 0) return;  // the other ranks have nothing to do
    use_threads(1);
    status = help ? cli_.exit(*stop_) : parsed()->on_rank_0();
  });
  return std::stoi(session.broadcast_text(std::to_string(status)));
}

const Command* CommandLine::parsed() const {
  const auto chosen =
      std::find_if(commands_.begin(), commands_.end(), [](const Command& c) { return c.app->parsed(); });
  return chosen == commands_.end() ? nullptr : &*chosen;
}

}  // namespace megalith
