// Implements megalith train, verify.
#include "configs/shrink.h"
#include "trainer/checkpointing/run_start.h"
#include "trainer/commands/command.h"
#include "trainer/job/agreement.h"
#include "trainer/planner/prediction.h"
#include "trainer/train/run.h"
#include "trainer/verify/verify.h"

namespace megalith {

Command train_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("train", "Train; on one rank or under mpirun");
  struct Options {
    std::string config;
    std::vector<std::string> overrides;
    int64_t shrink = 0;
  };
  auto o = std::make_shared<Options>();
  add_config(app, o->config, o->overrides);
  app->add_option(
         "--shrink", o->shrink,
         "rehearse the layout of [hardware] on this many ranks: a small model with every option of the large one")
      ->check(no_less_than(1));
  const auto train = [o](const Session& session) {
    Config config;
    together(session, [&] {
      config = load_run_config(o->config, o->overrides);
      if (o->shrink > 0) config = shrink(config, o->shrink);
    });
    return Run(config, session, predicted_step).train();
  };
  return {app, {}, train, [o] { return load_communication(o->config, o->overrides); }, true};
}

Command verify_command(CLI::App& cli) {
  auto* app =
      cli.add_subcommand("verify",
                         "Run the same steps under two layouts and report differences beyond rounding; on one rank or "
                         "under mpirun. Needs the memory of both layouts at once, and writes nothing to disk");
  auto options = std::make_shared<VerifyOptions>();
  add_config(app, options->config, options->overrides);
  app->add_option(
         "--against", options->against,
         "section.key=value ... of the other layout: parallel.*, memory.*, precision.*, batch.microbatch_size, "
         "run.device, communication.backend")
      ->required();
  app->add_option("--steps", options->steps, "updates under each layout")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  add_number(app, "--tolerance", options->tolerance, "multiplies every tolerance");
  app->add_flag("--all", options->all,
                "print every tensor of every step, not only all of the first and then the worst");
  app->add_option("--inject", options->inject,
                  "test of verify itself: adds 1 to an element of the tensor [STEP:]NAME of the other layout")
      ->group("");  // not listed
  return {app,
          {},
          [=](const Session& session) { return run_verify(*options, session) ? 0 : 1; },
          [=] { return load_communication(options->config, options->overrides); }};
}

}  // namespace megalith
