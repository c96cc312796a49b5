#include "trainer/inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "kernels/elementwise/philox.h"

namespace megalith {

int64_t choose(std::span<const float> logits, const Sampling& sampling, uint64_t sample, uint64_t token) {
  if (sampling.temperature == 0) return std::max_element(logits.begin(), logits.end()) - logits.begin();
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto k = sampling.top_k > 0 ? std::min<size_t>(static_cast<size_t>(sampling.top_k), order.size()) : order.size();
  auto logit = [&](int64_t id) { return static_cast<double>(logits[static_cast<size_t>(id)]); };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                    [&](int64_t a, int64_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  std::vector<double> weight(k);
  for (size_t i = 0; i < k; i++) weight[i] = std::exp((logit(order[i]) - logit(order[0])) / sampling.temperature);
  double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  if (sampling.top_p < 1) {
    const double wanted = sampling.top_p * total;
    total = 0;
    for (k = 0; k < weight.size() && (k == 0 || total < wanted); k++) total += weight[k];
  }
  double rest = uniform(philox(sampling.seed, token, sample)[0]) * total;
  for (size_t i = 0; i < k; i++) {
    rest -= weight[i];
    if (rest <= 0) return order[i];
  }
  return order[k - 1];
}

void penalize(std::span<float> logits, std::span<const int32_t> before, double penalty) {
  if (penalty == 1) return;
  for (const int32_t token : std::set<int32_t>(before.begin(), before.end())) {
    float& logit = logits[static_cast<size_t>(token)];
    logit = static_cast<float>(logit < 0 ? logit * penalty : logit / penalty);
  }
}

std::string StoppingText::add(std::string_view piece) {
  if (stopped_) return "";
  held_ += piece;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  stopped_ = end != std::string::npos;
  if (!stopped_) {
    // Hold back the longest end that begins a stop string.
    end = held_.size();
    for (const std::string& stop : stops_)
      for (size_t n = std::min(stop.size() - 1, held_.size()); n > held_.size() - end; n--)
        if (held_.ends_with(std::string_view(stop).substr(0, n))) end = held_.size() - n;
  }
  const std::string shown = held_.substr(0, end);
  held_ = stopped_ ? "" : held_.substr(end);
  return shown;
}

}  // namespace megalith
