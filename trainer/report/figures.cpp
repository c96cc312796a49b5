#include "trainer/report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "kernels/system/counted.h"
#include "trainer/report/words.h"

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

std::vector<Figure> figures_of(const History& run) {
  const double loss = last_mean(run.loss), held_out = lowest(run.held_out_loss), bits = lowest(run.bits_per_byte);
  const double tokens = run.steps.tokens.back(), speed = median_of(run.tokens_per_second), mfu = median_of(run.mfu);
  const double perplexity = std::isfinite(std::exp(held_out)) ? std::exp(held_out) : no_number;
  const auto steps = static_cast<int64_t>(run.steps.step.back());
  int64_t epoch = 0;
  for (const Source& source : run.data) epoch += source.samples;
  std::string steps_more = run.planned_steps > steps ? "of " + grouped(run.planned_steps) : "";
  if (!run.skipped.empty())
    steps_more += (steps_more.empty() ? "" : ", ") + fmt::format("{} skipped", run.skipped.size());
  return {
      {"Bits per byte", number_or_dash(bits, 4), "held-out", bits, -1},
      {"Held-out loss", number_or_dash(held_out, 4), "lowest", held_out, -1, true},
      {"Perplexity", perplexity >= 1000 ? short_number(perplexity) : number_or_dash(perplexity, 2), "held-out",
       perplexity, -1, true},
      {"Loss", number_or_dash(loss, 4), "mean at the end", loss, -1, true},
      {"Steps", grouped(steps), steps_more},
      {"Tokens", short_number(tokens),
       run.parameters > 0 ? fmt::format("{:.3g} a parameter", tokens / static_cast<double>(run.parameters)) : ""},
      {"Samples", run.samples > 0 ? short_number(static_cast<double>(run.samples)) : "–",
       epoch > 0 && run.data.size() == 1
           ? fmt::format("{:.3g} epochs", static_cast<double>(run.samples) / static_cast<double>(epoch))
           : ""},
      {"Training", duration(run.steps.hours.back()),
       run.resumed.empty() ? "" : "resumed " + counted(run.resumed.size(), "time")},
      {"Tokens a second", short_number(speed),
       std::isfinite(mfu) ? fmt::format("MFU {:.1f}\u00a0%", 100 * mfu) : "median", speed, 1},
  };
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

void sort_by_held_out(std::vector<History>& runs) {
  const auto has_bits = [](const History& run) { return std::isfinite(lowest(run.bits_per_byte)); };
  const bool by_bits = std::ranges::any_of(runs, has_bits);
  if (!by_bits && by_tokenizer(runs).size() > 1) return;
  std::ranges::stable_sort(runs, {}, [&](const History& run) {
    const double value = lowest(by_bits ? run.bits_per_byte : run.held_out_loss);
    return std::isfinite(value) ? value : std::numeric_limits<double>::infinity();
  });
}

std::string end_in_a_word(const RunLog& log) {
  switch (log.end) {
    case RunLog::End::done: return "done";
    case RunLog::End::ended: return "ended early";
    case RunLog::End::open: return "not ended";
    case RunLog::End::unknown: break;
  }
  return "–";
}

}  // namespace megalith
