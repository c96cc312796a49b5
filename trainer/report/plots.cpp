#include "trainer/report/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "trainer/report/figures.h"
#include "trainer/report/thinning.h"
#include "trainer/report/words.h"

namespace megalith {

namespace {

using Json = nlohmann::ordered_json;

struct Plot {
  const char *title, *unit;
  std::vector<double> History::*values;
  bool of_evaluations = false;
  bool of_tokens = false;  // a plot for each tokenizer
  bool wide = false;       // over the whole page
  bool marks = false;      // with skipped steps and resumptions
  bool noisy = false;      // each value faintly, and their mean over a while as the line
  bool from_zero = false;
  bool maybe_logarithmic = false;  // if values differ much
};

const std::vector<Plot>& all_plots() {
  static const std::vector<Plot> all = {
      {.title = "Loss",
       .unit = "nats a token",
       .values = &History::loss,
       .of_tokens = true,
       .wide = true,
       .marks = true,
       .noisy = true},
      {.title = "Held-out bits per byte", .unit = "", .values = &History::bits_per_byte, .of_evaluations = true},
      {.title = "Held-out loss",
       .unit = "nats a token",
       .values = &History::held_out_loss,
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
  return all;
}

Json bins_of(const std::vector<double>& y) {
  const Bins bins = in_bins(y);
  Json told{{"mean", plotted(bins.mean)}};
  if (bins.size > 1) {
    told["low"] = plotted(bins.low);
    told["high"] = plotted(bins.high);
  }
  return told;
}

Json places_of(const Abscissae& course) {
  Json told;
  for (const auto& [name, values] :
       {std::pair("steps", &course.step), {"tokens", &course.tokens}, {"time", &course.hours}})
    told[name] = plotted(in_bins(*values).middle);
  return told;
}

// Bins that hold one of these steps.
Json marked(const std::vector<size_t>& steps, size_t bin) {
  Json told = Json::array();
  for (const size_t step : steps)
    if (const size_t place = step / bin; told.empty() || told.back() != place) told.push_back(place);
  return told;
}

Json curves_of(const History& run, const std::string& name, size_t place) {
  const size_t bin = in_bins(run.loss).size;
  Json values = Json::object();
  for (const Plot& plot : all_plots()) values[plot.title] = bins_of(run.*plot.values);
  return {{"name", name},
          {"line", line_class(place)},
          {"steps_a_point", bin},
          {"steps", places_of(run.steps)},
          {"evaluations", places_of(run.evaluations)},
          {"skipped", marked(run.skipped, bin)},
          {"resumed", marked(run.resumed, bin)},
          {"values", std::move(values)}};
}

bool has_any(const History& run, const Plot& plot) {
  return std::ranges::any_of(run.*plot.values, [](double value) { return std::isfinite(value); });
}

}  // namespace

Json plotted(const std::vector<double>& values) {
  Json told = Json::array();
  for (const double value : values) {
    if (!std::isfinite(value))
      told.push_back(nullptr);
    else if (value == std::floor(value) && std::abs(value) < 1e15)
      told.push_back(static_cast<int64_t>(value));
    else
      told.push_back(std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr));
  }
  return told;
}

Json plots(const std::vector<History>& runs, const std::vector<std::string>& names) {
  Json curves = Json::array(), figures = Json::array();
  for (size_t r = 0; r < runs.size(); r++) curves.push_back(curves_of(runs[r], names[r], r));
  const std::vector<std::vector<size_t>> groups = by_tokenizer(runs);
  std::vector<std::vector<size_t>> together(1);
  for (size_t r = 0; r < runs.size(); r++) together[0].push_back(r);
  for (const Plot& plot : all_plots())
    for (const std::vector<size_t>& group : plot.of_tokens ? groups : together) {
      Json drawn = Json::array();
      for (const size_t r : group)
        if (has_any(runs[r], plot)) drawn.push_back(r);
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
