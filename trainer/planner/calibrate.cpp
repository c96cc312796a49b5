#include "trainer/planner/calibrate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"
#include "trainer/planner/in_parallel.h"

namespace megalith {

namespace {

constexpr size_t warm_up = 2;                               // steps
constexpr double shortest_step = 1e-6, longest_step = 1e6;  // seconds
constexpr double small_error = 0.05;                        // beyond, the loss is linear
constexpr double likely_change = 0.5;                       // standard deviation of a number's logarithm

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

MeasuredRun read_run(const std::string& folder) {
  MeasuredRun run{.folder = folder, .config = load_config(folder + "/config.toml"), .hardware = {}, .dry_runs = {}};
  CHECK(!run.config.hardware.profile.empty(),
        "{}/config.toml has no hardware.profile; add [hardware] profile = \"...\"", folder);
  run.hardware = load_hardware(run.config.hardware);
  const std::string metrics = folder + "/metrics.jsonl";
  std::vector<double> seconds;
  int ranks = 0;
  for_each_json_line(read_file(metrics), metrics, [&](const nlohmann::json& fields) {
    // Older files have the ranks in each step.
    const nlohmann::json& constant = fields.contains("start") ? fields.at("start") : fields;
    ranks = static_cast<int>(whole_number(constant.value("ranks", nlohmann::json(ranks)), 0, most_ranks));
    if (const auto found = fields.find("step_seconds"); found != fields.end())
      seconds.push_back(real_number(*found, shortest_step, longest_step));
  });
  CHECK(!seconds.empty() && ranks > 0, "{} has no line with step_seconds, or none with ranks; train some steps",
        metrics);
  if (seconds.size() > 2 * warm_up) seconds.erase(seconds.begin(), seconds.begin() + warm_up);
  run.seconds = median(seconds);
  if (run.config.parallel.ranks_per_node == 0)
    run.config.parallel.ranks_per_node = ranks_on_a_node(run.config, run.hardware, ranks);
  run.config.run.device = device_on(run.hardware, run.config.run.device);
  run.dry_runs = dry_run_stages(run.config, run.hardware, ranks, false);
  return run;
}

void predict_run(MeasuredRun& run) { run.predicted = predict(run.config, run.hardware, run.dry_runs).seconds; }

double error_of(const MeasuredRun& run) { return std::log(run.predicted / run.seconds); }

double penalty(const MeasuredRun& run) {
  const double error = std::abs(error_of(run)) / small_error;
  return error < 1 ? error * error / 2 : error - 0.5;
}

std::string scope_of(const std::string& key, const Hardware& hardware) {
  if (key == "calibrated.gemm") return hardware.device.name;
  if (key.starts_with("stack.")) return hardware.stack.name;
  return "";
}

struct Parameter {
  Fitted fitted;
  std::vector<size_t> runs;
};

void set(std::vector<MeasuredRun>& runs, const Parameter& p, double logarithm) {
  const double value = within_range(p.fitted.key, std::exp(logarithm));
  for (size_t i : p.runs) set_number(runs[i].hardware, p.fitted.key, value);
}

// Solves a x = b for a positive definite a by Cholesky's factorisation, which reads and overwrites its lower triangle.
std::vector<double> solve(std::vector<std::vector<double>>& a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t j = 0; j < n; j++) {
    for (size_t k = 0; k < j; k++) a[j][j] -= a[j][k] * a[j][k];
    a[j][j] = std::sqrt(a[j][j]);
    for (size_t i = j + 1; i < n; i++) {
      for (size_t k = 0; k < j; k++) a[i][j] -= a[i][k] * a[j][k];
      a[i][j] /= a[j][j];
    }
  }
  for (size_t i = 0; i < n; i++) {
    for (size_t k = 0; k < i; k++) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; k++) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

// Minimizes the loss over the logarithms of the numbers by the Levenberg-Marquardt method.
class Fit {
 public:
  Fit(std::vector<MeasuredRun>& runs, std::vector<Parameter>& parameters) : runs_(runs), parameters_(parameters) {
    for (const Parameter& p : parameters) start_.push_back(std::log(p.fitted.before));
  }

  void run() {
    std::vector<double> at = start_;
    double cost = cost_of(at), damping = 1e-3;
    for (int step = 0; step < most_steps && damping < most_damping; step++) {
      const auto [matrix, gradient] = linearize(at);
      for (; damping < most_damping; damping *= 10) {
        auto damped = matrix;
        for (size_t j = 0; j < at.size(); j++) damped[j][j] *= 1 + damping;
        const std::vector<double> change = solve(damped, gradient);
        std::vector<double> next = at;
        for (size_t j = 0; j < at.size(); j++) next[j] = bounded(j, at[j] - std::clamp(change[j], -most, most));
        const double after = cost_of(next);
        if (after >= cost) continue;
        const bool converged = after > cost * (1 - least_gain);
        at = next;
        cost = after;
        damping = converged ? most_damping : damping / 10;
        break;
      }
    }
    cost_of(at);
    for (size_t j = 0; j < at.size(); j++) parameters_[j].fitted.after = std::exp(at[j]);
  }

 private:
  static constexpr int most_steps = 30;
  static constexpr double most_damping = 1e6, most = 0.5, least_gain = 1e-4, difference = 0.01;

  double bounded(size_t j, double logarithm) const {
    return std::log(within_range(parameters_[j].fitted.key, std::exp(logarithm)));
  }

  double cost_of(const std::vector<double>& at) {
    double cost = 0;
    for (size_t j = 0; j < at.size(); j++) {
      set(runs_, parameters_[j], at[j]);
      cost += std::pow((at[j] - start_[j]) / likely_change, 2) / 2;
    }
    in_parallel(runs_.size(), [&](size_t i) { predict_run(runs_[i]); });
    for (const MeasuredRun& run : runs_) cost += penalty(run);
    return cost;
  }

  // Returns the normal equations at `at`, where the runs are predicted, with the lower triangle of their matrix.
  std::pair<std::vector<std::vector<double>>, std::vector<double>> linearize(const std::vector<double>& at) {
    const size_t n = at.size();
    std::vector<std::vector<double>> slopes(n, std::vector<double>(runs_.size()));
    std::vector<double> errors;
    for (const MeasuredRun& run : runs_) errors.push_back(error_of(run));
    for (size_t j = 0; j < n; j++) {
      const Parameter& p = parameters_[j];
      const double moved = bounded(j, at[j] + difference) >= at[j] + difference / 2 ? difference : -difference;
      set(runs_, p, at[j] + moved);
      in_parallel(p.runs.size(), [&](size_t i) { predict_run(runs_[p.runs[i]]); });
      for (size_t i : p.runs) slopes[j][i] = (error_of(runs_[i]) - errors[i]) / moved;
      set(runs_, p, at[j]);
      for (size_t i : p.runs) runs_[i].predicted = runs_[i].seconds * std::exp(errors[i]);
    }
    std::vector<std::vector<double>> matrix(n, std::vector<double>(n));
    std::vector<double> gradient(n);
    for (size_t j = 0; j < n; j++) {
      for (size_t i = 0; i < runs_.size(); i++) {
        const double weight = std::min(1.0, small_error / std::abs(errors[i])) / (small_error * small_error);
        gradient[j] += weight * slopes[j][i] * errors[i];
        for (size_t k = 0; k <= j; k++) matrix[j][k] += weight * slopes[j][i] * slopes[k][i];
      }
      gradient[j] += (at[j] - start_[j]) / (likely_change * likely_change);
      matrix[j][j] += 1 / (likely_change * likely_change);
    }
    return {matrix, gradient};
  }

  std::vector<MeasuredRun>& runs_;
  std::vector<Parameter>& parameters_;
  std::vector<double> start_;  // logarithms
};

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
      if (start == 0) continue;  // a number that is 0 stays 0
      for (size_t i : members)
        CHECK(number_of(runs[i].hardware, key) == start, "{} is {} in {} and {} in {}; start from one", key, start,
              runs[members.front()].folder, number_of(runs[i].hardware, key), runs[i].folder);
      parameters.push_back({{key, scope, start, start}, std::move(members)});
    }
  }
  if (!parameters.empty()) Fit(runs, parameters).run();
  std::vector<Fitted> fitted;
  for (const Parameter& p : parameters) fitted.push_back(p.fitted);
  return fitted;
}

std::string report(const std::vector<MeasuredRun>& runs, const std::vector<Fitted>& fitted) {
  std::string text = fmt::format("{:>10} {:>10} {:>8}  run\n", "measured", "predicted", "error");
  std::vector<double> errors;
  for (const MeasuredRun& run : runs) {
    const double error = run.predicted / run.seconds - 1;
    text += fmt::format("{:>8.4g} s {:>8.4g} s {:>+6.1f} %  {}\n", run.seconds, run.predicted, 100 * error, run.folder);
    errors.push_back(std::abs(error));
  }
  std::ranges::sort(errors);
  text += fmt::format("{}: median error {:.1f} %, 90th percentile {:.1f} %\n", counted(runs.size(), "run"),
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
