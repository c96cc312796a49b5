// megalith replay.
#include <fmt/format.h>

#include "trainer/commands/command.h"
#include "trainer/replay/replay.h"

namespace megalith {

Command replay_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("replay",
                                 "Repeat one step of a run from the newest checkpoint before it, and name the first op "
                                 "whose output is not finite; "
                                 "alone or under mpirun. Writes nothing");
  auto o = std::make_shared<ReplayOptions>();
  app->add_option("run", o->run, "run folder")->required();
  app->add_option("--step", o->step, "which step, counted from 1")->required()->check(no_less_than(1));
  app->add_option("--checkpoint", o->checkpoint, "the checkpoint to begin with; default: the newest before the step");
  add_overrides(app, o->overrides,
                "section.key=value ... of the layout: parallel.*, memory.*, precision.*, batch.microbatch_size, "
                "run.device, communication.*; and data.train and checkpoint.directory where files have moved");
  const auto replay_step = [o](const Session& session) {
    const Replayed replayed = replay(*o, session);
    if (session.rank() == 0)
      for (const std::string& line : lines_of(replayed)) fmt::print("{}\n", line);
    return 0;
  };
  return {app, {}, replay_step, [o] { return load_communication(o->run + "/config.toml", o->overrides); }};
}

}  // namespace megalith
