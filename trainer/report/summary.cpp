#include "trainer/report/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

namespace megalith {

namespace {

using Values = std::vector<double>;

Values finite(const Values& all) {
  Values found;
  std::ranges::copy_if(all, std::back_inserter(found), [](double v) { return std::isfinite(v); });
  return found;
}

double median_of(const Values& all) {
  Values values = finite(all);
  if (values.empty()) return no_number;
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

double lowest(const Values& all) {
  const Values values = finite(all);
  return values.empty() ? no_number : *std::ranges::min_element(values);
}

// Returns the mean of the last thirtieth.
double last_mean(const Values& all) {
  const Values last = finite({all.end() - static_cast<ptrdiff_t>((all.size() + 29) / 30), all.end()});
  return std::accumulate(last.begin(), last.end(), 0.0) / static_cast<double>(last.size());
}

// Returns a key that identifies the tokenizer.
std::string tokenizer_key(const History& run) {
  if (!run.tokenizer.empty()) return run.tokenizer;
  const auto setting = run.settings.find("data.tokenizer");
  return setting == run.settings.end() || setting->second == "\"\"" ? "unknown" : setting->second;
}

}  // namespace

nlohmann::ordered_json summary_of(const History& run) {
  const auto number = [](double value) { return std::isfinite(value) ? nlohmann::ordered_json(value) : nullptr; };
  const double validation = lowest(run.validation_loss);
  int64_t epoch = 0;
  for (const DataSource& source : run.data) epoch += source.samples;
  return {{"bits", number(lowest(run.bits_per_byte))},
          {"validation", number(validation)},
          {"perplexity", number(std::exp(validation))},
          {"loss", number(last_mean(run.loss))},
          {"steps", run.steps.step.back()},
          {"planned", run.planned_steps},
          {"skipped", run.skipped.size()},
          {"tokens", run.steps.tokens.back()},
          {"parameters", run.parameters},
          {"samples", run.samples},
          {"epoch", run.data.size() == 1 ? epoch : 0},
          {"hours", run.steps.hours.back()},
          {"resumed", run.resumed.size()},
          {"speed", number(median_of(run.tokens_per_second))},
          {"mfu", number(median_of(run.mfu))}};
}

std::vector<std::vector<size_t>> by_tokenizer(const std::vector<History>& runs) {
  std::vector<std::vector<size_t>> groups;
  std::map<std::string, size_t> places;
  for (size_t r = 0; r < runs.size(); r++) {
    const auto [found, is_new] = places.try_emplace(tokenizer_key(runs[r]), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(r);
  }
  return groups;
}

std::string tokenizer_in_words(const History& run) {
  return run.tokenizer_name.empty() ? tokenizer_key(run) : run.tokenizer_name;
}

void sort_by_validation(std::vector<History>& runs) {
  const auto has_bits = [](const History& run) { return std::isfinite(lowest(run.bits_per_byte)); };
  const bool by_bits = std::ranges::any_of(runs, has_bits);
  if (!by_bits && by_tokenizer(runs).size() > 1) return;
  std::ranges::stable_sort(runs, {}, [&](const History& run) {
    const double value = lowest(by_bits ? run.bits_per_byte : run.validation_loss);
    return std::isfinite(value) ? value : std::numeric_limits<double>::infinity();
  });
}

}  // namespace megalith
