// Implements megalith plan, search, measure, info.
#include "configs/hardware.h"
#include "configs/output_file.h"
#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "trainer/checkpointing/run_start.h"
#include "trainer/commands/command.h"
#include "trainer/job/agreement.h"
#include "trainer/machine/interrupt.h"
#include "trainer/planner/commands.h"
#include "trainer/planner/inventory.h"
#include "trainer/planner/this_machine.h"
#include "trainer/train/progress_bar.h"

namespace megalith {

namespace {

// Sets the shape of a model from its weights, since planning reads config files only.
void take_shape(const std::string& config, std::vector<std::string>& overrides) {
  if (load_places(config, overrides).checkpoint.init_from.empty()) return;
  const ModelConfig model = load_run_config(config, overrides).model;
  for (const std::string& key : shape_keys())
    overrides.push_back(fmt::format("model.{}={}", key, shape_value(model, key)));
  overrides.push_back(fmt::format("model.dropout={}", model.dropout));
}

}  // namespace

Command plan_command(CLI::App& cli) {
  auto* app = cli.add_subcommand(
      "plan", "Dry-run every rank's step: memory, traffic, FLOPs, time, and whether all transfers match");
  struct Options {
    PlanOptions plan;
    CalibrationOptions calibration;
  };
  auto o = std::make_shared<Options>();
  o->calibration.keys = numbers_of("calibrated");
  o->calibration.keys.push_back("stack.attention_share");
  add_config(app, o->plan.config, o->plan.overrides);
  auto* config = app->get_option("config")->required(false);
  auto* calibrate =
      app->add_option("--calibrate", o->calibration.runs,
                      "run folders: compares their measured steps with predicted ones, and fits the numbers of --fit");
  app->add_option("--fit", o->calibration.keys, "numbers of the hardware profile to fit")
      ->delimiter(',')
      ->capture_default_str()
      ->needs(calibrate);
  app->add_option("--json", o->calibration.json, "file for the result of --calibrate")->needs(calibrate);
  app->add_option("--ranks,--gpus", o->plan.ranks, "number of ranks, one for each GPU; default: all of [hardware]")
      ->excludes(calibrate);
  auto* tokens = add_number(app, "--tokens", o->plan.tokens, "of the whole run, for its hours; 0: train.steps");
  auto* trace = app->add_option("--trace", o->plan.trace, "file for the predicted time line, for ui.perfetto.dev");
  auto* compare =
      app->add_option("--compare", o->plan.compare,
                      "KEY or KEY=VALUE,VALUE: a table of memory, FLOPs and time for each value of an option");
  compare->excludes(tokens, trace);
  calibrate->excludes(config, tokens, trace, compare);
  return {app, [=] {
            check_output("--json", o->calibration.json);
            check_output("--trace", o->plan.trace);
            if (o->calibration.runs.empty()) {
              CHECK(config->count() > 0, "config is required, unless --calibrate names runs; see megalith plan --help");
              take_shape(o->plan.config, o->plan.overrides);
              return run_plan(o->plan) ? 0 : 1;
            }
            if (o->calibration.keys == std::vector<std::string>{"none"}) o->calibration.keys.clear();
            run_calibration(o->calibration);
            return 0;
          }};
}

Command search_command(CLI::App& cli) {
  auto* app = cli.add_subcommand(
      "search", "Try every layout on the machines of [hardware]: the fastest that fit; Ctrl-C prints those so far");
  auto options = std::make_shared<SearchOptions>();
  add_config(app, options->config, options->overrides);
  app->add_option("--ranks,--gpus", options->ranks, "number of ranks, one for each GPU; default: all of [hardware]");
  add_number(app, "--most", options->most, "layouts to print", 1);
  app->add_option("--write", options->out, "file for the config in the fastest layout");
  return {app, [options] {
            take_shape(options->config, options->overrides);
            const Interrupt interrupt;
            ProgressBar bar(ProgressBar::WithoutTerminal::lines);
            options->watch = [&](double share, const Search& found) {
              const std::string best = found.best.empty()
                                           ? "none fits yet"
                                           : fmt::format("best {:.4g} s/step", found.best[0].prediction.seconds);
              bar.draw(share, {{counted(found.tried, "layout") + " tried"}, {best}});
              if (share == 1 || interrupt.signal() != 0) bar.clear();
              return interrupt.signal() == 0;
            };
            const bool found = run_search(*options);
            return interrupt.signal() != 0 ? 128 + interrupt.signal() : found ? 0 : 1;
          }};
}

Command measure_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("measure",
                                 "Measure this machine's CPU and the link between its ranks, as a profile for plan; "
                                 "start it under mpirun with the number of ranks for training");
  auto out = std::make_shared<std::string>();
  app->add_option("--write", *out, "file for the profile; default: prints it");
  return {app, {}, [out](const Session& session) {
            together(session, [&] {
              check_measurable(session);
              if (session.rank() == 0 && !is_measured_profile(*out)) check_output("--write", *out);
            });
            const std::string profile = measure_this_machine(session);
            if (session.rank() == 0 && out->empty()) fmt::print("{}", profile);
            together(session, [&] {
              if (session.rank() == 0 && !out->empty()) write_file(*out, profile, {.replace = true});
            });
            return 0;
          }};
}

Command info_command(CLI::App& cli) {
  auto* app = cli.add_subcommand(
      "info", "Show this build and this machine: GPUs, links, limits, and problems that would stop a run");
  return {app, [] {
            const Inventory machine = collect_inventory();
            fmt::print("{}", describe(machine));
            return problems(machine).empty() ? 0 : 1;
          }};
}

}  // namespace megalith
