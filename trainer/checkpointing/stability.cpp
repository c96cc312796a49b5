#include "trainer/checkpointing/stability.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace megalith {

namespace {

bool far_above(double loss, const std::vector<double>& past) {
  if (past.empty()) return false;
  std::vector<double> sorted = past;
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return loss > *middle + std::max(*middle, 1.0);
}

}  // namespace

bool Stability::is_normal(double loss) const { return std::isfinite(loss) && !far_above(loss, losses_); }

void Stability::record(int64_t step, bool skipped, double loss) {
  last_step_ = step;
  if (skipped || !is_normal(loss)) return anomaly(step);
  if (losses_.size() == window) losses_.erase(losses_.begin());
  losses_.push_back(loss);
}

void Stability::anomaly(int64_t step) {
  if (!anomalies_.empty() && anomalies_.back().second >= step - 1) {
    anomalies_.back().second = step;
    return;
  }
  if (anomalies_.size() == most_anomalies) anomalies_.erase(anomalies_.begin());
  anomalies_.emplace_back(step, step);
}

int64_t Stability::stable_after(int64_t s) const {
  int64_t end = last_step_;
  for (auto t = anomalies_.rbegin(); t != anomalies_.rend() && t->second > s; ++t) end = std::max(s, t->first - 1);
  return std::max<int64_t>(0, end - s);
}

std::optional<int64_t> Stability::anomaly_since() const {
  if (anomalies_.empty() || anomalies_.back().second < last_step_) return {};
  return anomalies_.back().first;
}

nlohmann::json Stability::to_json() const { return {{"losses", losses_}, {"troubles", anomalies_}}; }

Stability Stability::from(const StateReader& state, int64_t step) {
  Stability stability;
  stability.last_step_ = step;
  stability.losses_ = state.numbers("losses", StateReader::Sign::any);
  stability.anomalies_ = state.ranges("troubles", step);
  return stability;
}

namespace {
std::set<int64_t> history(const std::set<int64_t>& steps, int64_t every) {
  std::set<int64_t> kept;
  for (auto s = every > 0 ? steps.lower_bound(every) : steps.end(); s != steps.end();
       s = steps.lower_bound((*s / every + 1) * every))
    kept.insert(*s);
  return kept;
}
}  // namespace

std::set<int64_t> needed_checkpoints(const std::set<int64_t>& steps, const Stability& stability, int64_t settle,
                                     int64_t keep_every) {
  if (steps.empty()) return {};
  std::set<int64_t> needed = history(steps, keep_every);
  const auto settled = [&](int64_t s) { return stability.settled(s, settle); };
  const auto newest = std::find_if(steps.rbegin(), steps.rend(), settled);
  needed.insert(newest != steps.rend() ? *newest : *steps.begin());
  // Only a step after the last anomaly can still settle.
  const int64_t last = stability.last_step();
  const auto may_settle = [&](int64_t s) {
    return !settled(s) && stability.stable_after(s) == std::max<int64_t>(0, last - s);
  };
  const auto oldest = std::find_if(steps.begin(), steps.end(), may_settle);
  if (oldest != steps.end()) needed.insert(*oldest);
  return needed;
}

std::optional<int64_t> restart_step(const std::set<int64_t>& steps, const Stability& stability, int64_t settle,
                                    const LastWeights& last) {
  const auto has_them = steps.lower_bound(last.since);
  if (last.stable && has_them != steps.end()) return *has_them;
  const int64_t end = std::min(stability.anomaly_since().value_or(last.since), last.since);
  std::optional<int64_t> best;
  for (auto s = steps.begin(); s != steps.end() && (last.stable || *s < end); ++s) {
    const bool better =
        !best || stability.settled(*s, settle) ||
        (!stability.settled(*best, settle) && stability.stable_after(*s) >= stability.stable_after(*best));
    if (better) best = *s;
  }
  return best;
}

}  // namespace megalith
