#include "trainer/report/time_went.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "trainer/report/plot.h"
#include "trainer/report/thinning.h"

namespace megalith {

namespace {

double sum_of(const std::vector<double>& all) { return std::accumulate(all.begin(), all.end(), 0.0); }

double seconds_of(const History& run) {
  double all = 0;
  for (const auto& [name, seconds] : run.time) all += sum_of(seconds);
  return all;
}

// Those first that took the largest shares of their runs.
std::vector<std::string> parts_of(const std::vector<History>& runs) {
  std::map<std::string, double> shares;
  for (const History& run : runs)
    for (const auto& [name, seconds] : run.time)
      if (const double spent = sum_of(seconds); spent > 0) shares[name] += spent / seconds_of(run);
  std::vector<std::string> parts;
  for (const auto& [name, share] : shares) parts.push_back(name);
  std::ranges::stable_sort(parts, std::greater(), [&](const std::string& name) { return shares[name]; });
  return parts;
}

// Beyond the colours that there are, the rest is one.
std::vector<Layer> layers_of(const History& run, const std::vector<std::string>& parts) {
  std::vector<Layer> layers;
  for (size_t place = 0; place < parts.size(); place++) {
    const auto found = run.time.find(parts[place]);
    if (found == run.time.end() || !(sum_of(found->second) > 0)) continue;
    const bool rest = parts.size() > num_colours && place >= num_colours - 1;
    if (!rest || layers.empty() || layers.back().colour < num_colours - 1)
      layers.push_back(
          {rest ? "all else" : parts[place], rest ? num_colours - 1 : static_cast<int>(place), found->second});
    else
      for (size_t i = 0; i < found->second.size(); i++) layers.back().y[i] += found->second[i];
  }
  return layers;
}

// The most seconds of a step, as it is drawn, in all parts but these.
double highest_of(const History& run, const std::set<std::string>& without = {}) {
  std::vector<double> seconds(run.timed_steps.size(), 0);
  for (const auto& [name, of_steps] : run.time)
    for (size_t i = 0; i < seconds.size() && !without.contains(name); i++) seconds[i] += of_steps[i];
  const std::vector<double> drawn = binned(seconds);
  return drawn.empty() ? 0 : *std::ranges::max_element(drawn);
}

}  // namespace

std::string where_time_went(const std::vector<History>& runs, const std::vector<std::string>& names) {
  const std::vector<std::string> parts = parts_of(runs);
  if (parts.empty()) return "";
  // What lies between two steps, by its names in metrics.jsonl, may take as long as many: it is cut, lest it flatten
  // them.
  const std::set<std::string> between = {"evaluation", "checkpoint"};
  double steps = 0, all = 0;
  for (const History& run : runs) {
    steps = std::max(steps, highest_of(run, between));
    all = std::max(all, highest_of(run));
  }
  const double top = steps > 0 ? std::min(all, 1.3 * steps) : all;
  std::string text;
  for (size_t r = 0; r < runs.size(); r++) {
    const std::vector<Layer> layers = layers_of(runs[r], parts);
    if (layers.empty()) continue;
    std::vector<AreaName> legend;
    for (const Layer& layer : layers)
      legend.push_back(
          {layer.colour, layer.name, fmt::format("{:.1f} %", 100 * sum_of(layer.y) / seconds_of(runs[r]))});
    const double highest = highest_of(runs[r]);
    const std::string note =
        highest > top
            ? fmt::format("<p class=\"note\">Cut off above; the highest reaches {} s.</p>", short_number(highest))
            : "";
    text += stacked_plot(runs.size() > 1 ? names[r] : "Time of a step", "seconds a step", runs[r].timed_steps, layers,
                         top, note + areas_list(legend));
  }
  return "<h2>Where the time went</h2><div class=\"row\">" + text + "</div>\n";
}

}  // namespace megalith
