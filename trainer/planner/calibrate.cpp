#include "trainer/planner/calibrate.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/base/files.h"
#include "kernels/base/json.h"

namespace megalith {

namespace {

constexpr size_t warm_up = 2;         // steps of a run that are not counted
constexpr double small_error = 0.05;  // where the penalty of an error becomes linear
constexpr double likely_change = 1;   // of the logarithm of a number; beyond, runs must have good reasons
constexpr double first_stride = 0.2, last_stride = 0.004;

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

MeasuredRun read_run(const std::string& folder) {
  MeasuredRun run{.folder = folder, .config = load_config(folder + "/config.toml"), .hardware = {}, .rehearsed = {}};
  CHECK(!run.config.hardware.profile.empty(),
        "{}/config.toml has no hardware.profile; add [hardware] profile = \"...\"", folder);
  run.hardware = load_hardware(run.config.hardware.profile);
  std::istringstream lines(read_file(folder + "/metrics.jsonl"));
  std::vector<double> seconds;
  int ranks = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json fields = parse_json(line);
    if (!fields.contains("step_seconds") || !fields.contains("ranks")) continue;
    seconds.push_back(fields["step_seconds"].get<double>());
    ranks = fields["ranks"].get<int>();
  }
  CHECK(!seconds.empty(), "{}/metrics.jsonl has no line with step_seconds and ranks; train some steps", folder);
  if (seconds.size() > 2 * warm_up) seconds.erase(seconds.begin(), seconds.begin() + warm_up);
  run.seconds = median(seconds);
  if (run.config.parallel.ranks_per_node == 0)
    run.config.parallel.ranks_per_node = std::min<int64_t>(ranks, run.hardware.device.per_node);
  run.rehearsed = rehearse_stages(run.config, ranks, false);
  return run;
}

// Calls work(i) for each, on all threads; the first error goes on.
template <class Work>
void in_parallel(size_t count, Work work) {
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic)
  for (size_t i = 0; i < count; i++) {
    try {
      work(i);
    } catch (...) {
#pragma omp critical
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void predict_run(MeasuredRun& run) { run.predicted = predict(run.config, run.hardware, run.rehearsed).seconds; }

double penalty(const MeasuredRun& run) {
  const double error = std::abs(std::log(run.predicted / run.seconds)) / small_error;
  return error < 1 ? error * error / 2 : error - 0.5;
}

std::string scope_of(const std::string& key, const Hardware& hardware) {
  if (key == "calibrated.gemm") return hardware.device.name;
  if (key == "calibrated.attention" || key.starts_with("stack.")) return hardware.stack.name;
  return "";
}

// A number and the runs that it is for.
struct Parameter {
  Fitted fitted;
  std::vector<size_t> runs;
};

// One step of the search: whether the number at `value` is better, which it then has.
bool try_value(std::vector<MeasuredRun>& runs, Parameter& p, double value) {
  const auto cost_of = [&](double at) { return std::pow(std::log(at / p.fitted.before) / likely_change, 2) / 2; };
  double before = cost_of(p.fitted.after);
  for (size_t i : p.runs) before += penalty(runs[i]);
  std::vector<MeasuredRun*> touched;
  std::vector<double> predicted;
  for (size_t i : p.runs) {
    touched.push_back(&runs[i]);
    predicted.push_back(runs[i].predicted);
  }
  try {
    for (MeasuredRun* run : touched) set_number(run->hardware, p.fitted.key, value);
  } catch (const Error&) {  // out of range
    for (MeasuredRun* run : touched) set_number(run->hardware, p.fitted.key, p.fitted.after);
    return false;
  }
  in_parallel(touched.size(), [&](size_t i) { predict_run(*touched[i]); });
  double after = cost_of(value);
  for (const MeasuredRun* run : touched) after += penalty(*run);
  if (after < before) {
    p.fitted.after = value;
    return true;
  }
  for (size_t i = 0; i < touched.size(); i++) {
    set_number(touched[i]->hardware, p.fitted.key, p.fitted.after);
    touched[i]->predicted = predicted[i];
  }
  return false;
}

std::vector<double> errors_of(const std::vector<MeasuredRun>& runs) {
  std::vector<double> errors;
  for (const MeasuredRun& run : runs) errors.push_back(std::abs(run.predicted / run.seconds - 1));
  std::ranges::sort(errors);
  return errors;
}

}  // namespace

std::vector<MeasuredRun> read_runs(const std::vector<std::string>& folders) {
  std::vector<MeasuredRun> runs(folders.size());
  in_parallel(folders.size(), [&](size_t i) {
    runs[i] = read_run(folders[i]);
    predict_run(runs[i]);
  });
  return runs;
}

std::vector<Fitted> calibrate(std::vector<MeasuredRun>& runs, const std::vector<std::string>& keys) {
  std::vector<Parameter> parameters;
  for (const std::string& key : keys) {
    std::map<std::string, std::vector<size_t>> scopes;
    for (size_t i = 0; i < runs.size(); i++) scopes[scope_of(key, runs[i].hardware)].push_back(i);
    for (auto& [scope, members] : scopes) {
      const double start = number_of(runs[members.front()].hardware, key);
      if (start == 0) continue;  // what is off stays off
      for (size_t i : members)
        CHECK(number_of(runs[i].hardware, key) == start, "{} is {} in {} and {} in {}; start from one", key, start,
              runs[members.front()].folder, number_of(runs[i].hardware, key), runs[i].folder);
      parameters.push_back({{key, scope, start, start}, std::move(members)});
    }
  }
  for (double stride = first_stride; stride > last_stride;) {
    bool better = false;
    for (Parameter& p : parameters)
      for (double factor : {1 + stride, 1 / (1 + stride)})
        if (try_value(runs, p, p.fitted.after * factor)) {
          better = true;
          break;
        }
    if (!better) stride /= 2;
  }
  std::vector<Fitted> fitted;
  for (const Parameter& p : parameters) fitted.push_back(p.fitted);
  return fitted;
}

std::string report(const std::vector<MeasuredRun>& runs, const std::vector<Fitted>& fitted) {
  std::string text = fmt::format("{:>10} {:>10} {:>8}  run\n", "measured", "predicted", "error");
  for (const MeasuredRun& run : runs)
    text += fmt::format("{:>8.4g} s {:>8.4g} s {:>+6.1f} %  {}\n", run.seconds, run.predicted,
                        100 * (run.predicted / run.seconds - 1), run.folder);
  const std::vector<double> errors = errors_of(runs);
  text += fmt::format("{} runs: median error {:.1f} %, 90th percentile {:.1f} %\n", runs.size(),
                      100 * errors[errors.size() / 2], 100 * errors[errors.size() * 9 / 10]);
  if (!fitted.empty()) text += "fitted:\n";
  for (const Fitted& f : fitted)
    text += fmt::format("  {:<28} {:>10.4g} -> {:<10.4g} {}\n", f.key, f.before, f.after, f.scope);
  return text;
}

void write_json(const std::vector<MeasuredRun>& runs, const std::vector<Fitted>& fitted, const std::string& path) {
  nlohmann::json rows = nlohmann::json::array(), numbers = nlohmann::json::array();
  for (const MeasuredRun& run : runs)
    rows.push_back({{"run", run.folder}, {"measured", run.seconds}, {"predicted", run.predicted}});
  for (const Fitted& f : fitted)
    numbers.push_back({{"key", f.key}, {"scope", f.scope}, {"before", f.before}, {"after", f.after}});
  write_file(path, json_text(nlohmann::json{{"runs", rows}, {"fitted", numbers}}, 1), {.replace = true});
}

}  // namespace megalith
