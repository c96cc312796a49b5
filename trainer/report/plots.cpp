#include "trainer/report/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/report/summary.h"
#include "trainer/report/thinning.h"

namespace megalith {

namespace {

using Json = nlohmann::ordered_json;

struct Plot {
  std::string title;
  const char* unit = "";
  std::vector<double> History::*values = nullptr;
  std::string set = {};  // instead of `values`: the losses of this validation set
  bool of_evaluations = false;
  bool of_tokens = false;  // one plot for each tokenizer
  bool wide = false;       // spans the page
  bool marks = false;      // skipped steps and resumptions
  bool noisy = false;      // faint values with a line of their moving mean
  bool from_zero = false;
  bool maybe_logarithmic = false;

  std::vector<double> of(const History& run) const {
    if (set.empty()) return run.*values;
    const auto found = run.set_losses.find(set);
    return found == run.set_losses.end() ? std::vector<double>() : found->second;
  }
  bool is_known(const History& run) const {
    return std::ranges::any_of(of(run), [](double value) { return std::isfinite(value); });
  }
};

std::vector<Plot> plots_of(const std::vector<History>& runs) {
  std::vector<Plot> all = {
      {.title = "Loss",
       .unit = "nats a token",
       .values = &History::loss,
       .of_tokens = true,
       .wide = true,
       .marks = true,
       .noisy = true},
      {.title = "Validation bits per byte", .unit = "", .values = &History::bits_per_byte, .of_evaluations = true},
      {.title = "Validation loss",
       .unit = "nats a token",
       .values = &History::validation_loss,
       .of_evaluations = true,
       .of_tokens = true},
      {.title = "Gradient norm",
       .unit = "before clipping",
       .values = &History::norm,
       .noisy = true,
       .maybe_logarithmic = true},
      {.title = "Learning rate", .unit = "", .values = &History::learning_rate, .from_zero = true},
      {.title = "Speed",
       .unit = "tokens a second",
       .values = &History::tokens_per_second,
       .noisy = true,
       .from_zero = true},
  };
  std::set<std::string> sets;
  for (const History& run : runs)
    for (const auto& [name, losses] : run.set_losses) sets.insert(name);
  const auto after = std::ranges::find(all, "Validation loss", &Plot::title) + 1;
  std::vector<Plot> of_sets;
  of_sets.reserve(sets.size());
  for (const std::string& set : sets)
    of_sets.push_back({.title = "Validation loss of " + set,
                       .unit = "nats a token",
                       .set = set,
                       .of_evaluations = true,
                       .of_tokens = true});
  all.insert(after, of_sets.begin(), of_sets.end());
  return all;
}

Json values_of(const std::vector<double>& y) {
  const Bins bins = in_bins(y);
  if (bins.size == 1) return {{"mean", plotted(bins.mean)}};
  return {{"mean", plotted(bins.mean)}, {"low", plotted(bins.low)}, {"high", plotted(bins.high)}};
}

Json axes_of(const Abscissae& x) {
  const auto middle = [](const std::vector<double>& values) { return plotted(in_bins(values).middle); };
  return {{"steps", middle(x.step)}, {"tokens", middle(x.tokens)}, {"time", middle(x.hours)}};
}

// Returns the bins that hold one of the steps.
Json marked(const std::vector<size_t>& steps, size_t bin) {
  Json bins = Json::array();
  for (const size_t step : steps)
    if (const size_t place = step / bin; bins.empty() || bins.back() != place) bins.push_back(place);
  return bins;
}

Json curves_of(const History& run, const std::string& name, const std::vector<Plot>& all) {
  const size_t bin = in_bins(run.loss).size;
  Json values = Json::object();
  for (const Plot& plot : all)
    if (plot.is_known(run)) values[plot.title] = values_of(plot.of(run));
  return {{"name", name},
          {"steps_a_point", bin},
          {"steps", axes_of(run.steps)},
          {"evaluations", axes_of(run.evaluations)},
          {"skipped", marked(run.skipped, bin)},
          {"resumed", marked(run.resumed, bin)},
          {"values", std::move(values)}};
}

}  // namespace

Json plotted(const std::vector<double>& values) {
  Json numbers = Json::array();
  for (const double value : values) {
    if (!std::isfinite(value))
      numbers.push_back(nullptr);
    else if (value == std::floor(value) && std::abs(value) < 1e15)
      numbers.push_back(static_cast<int64_t>(value));
    else
      numbers.push_back(std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr));
  }
  return numbers;
}

Json plots(const std::vector<History>& runs, const std::vector<std::string>& names) {
  Json curves = Json::array(), figures = Json::array();
  const std::vector<Plot> all = plots_of(runs);
  for (size_t r = 0; r < runs.size(); r++) curves.push_back(curves_of(runs[r], names[r], all));
  const std::vector<std::vector<size_t>> groups = by_tokenizer(runs);
  std::vector<std::vector<size_t>> together(1);
  for (size_t r = 0; r < runs.size(); r++) together[0].push_back(r);
  for (const Plot& plot : all)
    for (const std::vector<size_t>& group : plot.of_tokens ? groups : together) {
      Json drawn = Json::array();
      for (const size_t r : group)
        if (plot.is_known(runs[r])) drawn.push_back(r);
      if (drawn.empty()) continue;
      const bool apart = plot.of_tokens && groups.size() > 1;
      figures.push_back({{"title", plot.title},
                         {"unit", plot.unit},
                         {"under", apart ? tokenizer_in_words(runs[group[0]]) : ""},
                         {"runs", std::move(drawn)},
                         {"over", plot.of_evaluations ? "evaluations" : "steps"},
                         {"wide", plot.wide},
                         {"marks", plot.marks},
                         {"noisy", plot.noisy},
                         {"fromZero", plot.from_zero},
                         {"maybeLog", plot.maybe_logarithmic}});
    }
  return {{"runs", std::move(curves)}, {"plots", std::move(figures)}};
}

}  // namespace megalith
