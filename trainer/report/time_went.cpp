#include "trainer/report/sections.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "trainer/report/thinning.h"

namespace megalith {

namespace {

struct Layer {
  std::string name;
  int colour = 0;
  std::vector<double> y;  // by step
};

double sum_of(const std::vector<double>& all) { return std::accumulate(all.begin(), all.end(), 0.0); }

double seconds_of(const History& run) {
  double all = 0;
  for (const auto& [name, seconds] : run.time) all += sum_of(seconds);
  return all;
}

// Returns the parts by their shares of the runs' time, descending.
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

// Merges parts beyond the number of colours.
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

// Returns the highest value of the plot, without some parts.
double highest_of(const History& run, const std::set<std::string>& without = {}) {
  std::vector<double> seconds(run.timed_steps.size(), 0);
  for (const auto& [name, of_steps] : run.time)
    for (size_t i = 0; i < seconds.size() && !without.contains(name); i++) seconds[i] += of_steps[i];
  const std::vector<double> drawn = binned(seconds);
  return drawn.empty() ? 0 : *std::ranges::max_element(drawn);
}

// Returns the edges of binned()'s bins. A value covers the steps since the previous one.
std::vector<double> edges_of(const std::vector<double>& steps) {
  const size_t bins = binned(steps).size();
  std::vector<double> edges{std::max(0.0, steps.front() - (steps.size() > 1 ? steps[1] - steps[0] : 1))};
  for (size_t b = 1; b <= bins; b++) edges.push_back(steps[b * steps.size() / bins - 1]);
  return edges;
}

}  // namespace

nlohmann::ordered_json where_time_went(const std::vector<History>& runs) {
  nlohmann::ordered_json plots = nlohmann::ordered_json::array();
  const std::vector<std::string> parts = parts_of(runs);
  // Leaves out the work between two steps, which may take as long as many steps and would flatten the plot.
  const std::set<std::string> between = {"evaluation", "sampling", "checkpoint"};
  double steps = 0, all = 0;
  for (const History& run : runs) {
    steps = std::max(steps, highest_of(run, between));
    all = std::max(all, highest_of(run));
  }
  const double top = steps > 0 ? std::min(all, 1.3 * steps) : all;
  for (size_t r = 0; r < runs.size(); r++) {
    nlohmann::ordered_json layers = nlohmann::ordered_json::array();
    for (const Layer& layer : layers_of(runs[r], parts))
      layers.push_back({{"name", layer.name},
                        {"colour", layer.colour},
                        {"share", sum_of(layer.y) / seconds_of(runs[r])},
                        {"seconds", plotted(binned(layer.y))}});
    if (layers.empty()) continue;
    plots.push_back({{"run", r},
                     {"top", top},
                     {"highest", highest_of(runs[r])},
                     {"edges", plotted(edges_of(runs[r].timed_steps))},
                     {"layers", std::move(layers)}});
  }
  return plots;
}

}  // namespace megalith
