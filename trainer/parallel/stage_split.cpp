#include "trainer/parallel/stage_split.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>

#include "kernels/check.h"
#include "trainer/model/spec.h"

namespace megalith {

namespace {

// The smallest, the last of them where several are.
size_t lightest(const std::vector<double>& loads) {
  return static_cast<size_t>(loads.rend() - std::min_element(loads.rbegin(), loads.rend())) - 1;
}

}  // namespace

StageCosts stage_costs(const ModelConfig& model, int64_t sequence_length) {
  ModelConfig layer = model, none = model, head = model;
  layer.layers = 1;
  none.layers = head.layers = 0;
  layer.vocab = none.vocab = 0;
  const double layer_flops = model_flops_per_token(layer, sequence_length, true);
  const auto layer_parameters =
      static_cast<double>(num_parameters(model_spec(layer)) - num_parameters(model_spec(none)));
  const double tokens = static_cast<double>(model.vocab * model.hidden),
               positions = static_cast<double>(model.context * model.hidden);
  return {.layers = model.layers,
          .embedding = (tokens + positions) / layer_parameters / 2,
          .head = (model_flops_per_token(head, sequence_length, true) / layer_flops + tokens / layer_parameters) / 2};
}

std::vector<int64_t> split_layers(const StageCosts& costs, int64_t stages, int64_t virtual_stages) {
  const int64_t chunks = stages * virtual_stages;
  CHECK(chunks <= costs.layers,
        "parallel.pipeline_parallel_degree = {} times parallel.virtual_stages = {} makes {} chunks of model.layers = "
        "{}, and each needs a layer: their product can be {} at most",
        stages, virtual_stages, chunks, costs.layers, costs.layers);
  std::vector<int64_t> layers(static_cast<size_t>(chunks), 1);
  std::vector<double> chunk_loads(layers.size(), 1);
  chunk_loads.front() += costs.embedding;
  chunk_loads.back() += costs.head;
  const auto p = static_cast<size_t>(stages);
  std::vector<double> loads(p, 0);
  for (size_t c = 0; c < layers.size(); c++) loads[c % p] += chunk_loads[c];
  for (int64_t left = costs.layers - chunks; left > 0; left--) {
    const size_t stage = lightest(loads);
    std::vector<double> own;
    for (size_t c = stage; c < layers.size(); c += p) own.push_back(chunk_loads[c]);
    const size_t chunk = stage + lightest(own) * p;
    layers[chunk]++;
    chunk_loads[chunk]++;
    loads[stage]++;
  }
  return layers;
}

std::vector<int64_t> parse_layers_per_stage(const std::string& text, int64_t layers, int64_t chunks) {
  const auto refuse = [&](const std::string& why) {
    FAIL("parallel.layers_per_stage = \"{}\": {}; give {} numbers that add up to model.layers = {}, or leave it empty",
         text, why, chunks, layers);
  };
  std::vector<int64_t> counts;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int64_t count = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), count);
    if (error != std::errc() || end != word.data() + word.size()) refuse(fmt::format("'{}' is not a number", word));
    if (count < 1) refuse(fmt::format("{} layers, and each chunk needs one", count));
    if (count > layers) refuse(fmt::format("{} layers are more than the model has", count));
    counts.push_back(count);
  }
  if (static_cast<int64_t>(counts.size()) != chunks)
    refuse(fmt::format("{} numbers for the {} chunks (stages times virtual stages)", counts.size(), chunks));
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (sum != layers) refuse(fmt::format("{} layers in all", sum));
  return counts;
}

}  // namespace megalith
