#include "trainer/planner/commands.h"

#include <algorithm>
#include <filesystem>

#include "kernels/system/files.h"
#include "kernels/system/long_work.h"
#include "trainer/planner/calibrate.h"
#include "trainer/planner/compare.h"
#include "trainer/planner/dry_run.h"
#include "trainer/planner/search.h"
#include "trainer/planner/verdict.h"
#include "trainer/step/text_data.h"

namespace megalith {

namespace {

// Fills in values that a config may leave out.
struct Job {
  Config config;
  std::optional<Hardware> hardware;
  int ranks = 0;

  Job(Config read, std::optional<int> asked) : config(std::move(read)) {
    find_masks(config);  // reads existing token files
    if (config.model.vocab == 0) {
      try {
        open_tokenizer(config);
      } catch (const Error& e) {
        FAIL("model.vocab = 0 means that of the tokenizer ({}); to plan without one, add model.vocab=N", e.what());
      }
    }
    if (!config.hardware.profile.empty()) hardware = load_hardware(config.hardware);
    if (hardware) config.run.device = device_on(*hardware, config.run.device);
    CHECK(hardware || asked,
          "--ranks is missing, and hardware.profile does not give the number of devices; set one of them. Known "
          "profiles are {}",
          known_profile_names());
    const int64_t devices = asked ? *asked : config.hardware.nodes * hardware->device.per_node;
    CHECK(devices <= most_ranks, "a plan for {} ranks; at most {} can be planned; lower {}", devices, most_ranks,
          asked ? "--ranks" : "hardware.nodes");
    ranks = static_cast<int>(devices);
    if (config.parallel.ranks_per_node == 0)
      config.parallel.ranks_per_node = hardware ? ranks_on_a_node(config, *hardware, ranks) : 8;
  }
};

bool run_comparison(const PlanOptions& options) {
  const Comparison asked = comparison_of(options.compare, load_config(options.config, options.overrides));
  std::vector<Compared> all;
  LongWork work("planning with each value of " + asked.key, static_cast<int64_t>(asked.values.size()));
  for (const std::string& value : asked.values) {
    work.advance(1);
    std::vector<std::string> overrides = options.overrides;
    overrides.push_back(asked.key + "=" + value);
    try {
      const Job job(load_config(options.config, overrides), options.ranks);
      all.push_back(compare(value, job.config, job.hardware, job.ranks));
    } catch (const Error& e) {
      all.push_back({.value = value, .refused = e.what()});
    }
  }
  fmt::print("{}", report(asked.key, all));
  return std::ranges::any_of(all, [](const Compared& c) { return c.refused.empty(); });
}

}  // namespace

bool run_plan(const PlanOptions& options) {
  if (!options.compare.empty()) return run_comparison(options);
  const Job job(load_config(options.config, options.overrides), options.ranks);
  const Config& config = job.config;
  CHECK(job.hardware || (options.trace.empty() && options.tokens == 0),
        "--trace and --tokens need machines; set hardware.profile to a file or to one of {}", known_profile_names());
  const DryRun run = dry_run(config, job.ranks, chip_of(job.hardware.value_or(Hardware{}), config.run.device));
  const std::string details = report(config, run);
  if (!run.faults.empty() || !job.hardware) {
    fmt::print("verdict: {}\n{}",
               !run.faults.empty()
                   ? "DOES NOT RUN: transfers do not match; the last lines list them"
                   : "unknown without machines; set hardware.profile to one of\n  " + known_profile_names() +
                         ",\n  or to a file that `megalith measure` writes for this machine",
               details);
    return run.faults.empty();
  }
  const Prediction prediction =
      predict(config, *job.hardware, dry_run_stages(config, *job.hardware, job.ranks, true), !options.trace.empty());
  const double tokens =
      options.tokens > 0 ? options.tokens : prediction.tokens * static_cast<double>(config.train.steps);
  const Verdict found = verdict(config, *job.hardware, run.mesh, run.memory, prediction);
  fmt::print("{}{}{}", found.text, report(prediction, run.mesh, tokens), details);
  if (!options.trace.empty()) {
    TraceFile file(options.trace);
    for (const TraceProcess& stage : trace_of(prediction)) file.add(stage);
    file.publish();
  }
  return found.fits;
}

bool run_search(const SearchOptions& options) {
  const Config read = load_config(options.config, options.overrides);
  const Job job(read, options.ranks);
  if (std::error_code absent; !options.out.empty() && std::filesystem::exists(options.out, absent))
    CHECK(is_generated(read_file(options.out)),
          "--write {} would lose the comments of a handwritten config; name another file", options.out);
  CHECK(job.hardware, "search needs the machines: set hardware.profile to a file or to one of {}",
        known_profile_names());
  std::string written;
  const auto write_fastest = [&](const Search& found) {
    if (options.out.empty() || found.best.empty()) return;
    Config best = read;  // without Job's additions
    best.parallel = found.best.front().config.parallel;
    best.parallel.ranks_per_node = read.parallel.ranks_per_node;
    best.memory = found.best.front().config.memory;
    best.batch = found.best.front().config.batch;
    std::string text = to_toml(best);
    if (text == written) return;
    write_file(options.out, text, {.replace = true});
    written = std::move(text);
  };
  const Search found =
      search(job.config, *job.hardware, job.ranks, options.most, [&](double share, const Search& so_far) {
        write_fastest(so_far);
        return !options.watch || options.watch(share, so_far);
      });
  fmt::print("{}", report(found, *job.hardware));
  write_fastest(found);
  return !found.best.empty();
}

void run_calibration(const CalibrationOptions& options) {
  std::vector<MeasuredRun> runs = read_runs(options.runs);
  const std::vector<Fitted> fitted = calibrate(runs, options.keys);
  fmt::print("{}", report(runs, fitted));
  if (!options.json.empty()) write_json(runs, fitted, options.json);
}

}  // namespace megalith
