#include "trainer/layout/stage_split.h"

#include <algorithm>

#include "kernels/system/check.h"
#include "trainer/model/spec.h"

namespace megalith {

namespace {

// Returns the index of the smallest load, the last one of several.
size_t lightest(const std::vector<double>& loads) {
  return static_cast<size_t>(loads.rend() - std::min_element(loads.rbegin(), loads.rend())) - 1;
}

}  // namespace

StageCosts stage_costs(const ModelConfig& model, int64_t sequence_length) {
  double layer_parameters = 0, embedding_parameters = 0, head_parameters = 0;
  for (const UnitSpec& unit : model_spec(model)) {
    const auto all = static_cast<double>(num_parameters(unit));
    if (unit.is_layer()) layer_parameters = all;
    if (unit.embedding) embedding_parameters += all;
    for (const ParamSpec& param : unit.params)
      if (unit.head && param.multiplies) head_parameters += static_cast<double>(param.shape.numel());
  }
  ModelConfig layer = model, head = model;
  layer.layers = 1;
  layer.vocab = head.layers = 0;
  const double layer_flops = model_flops_per_token(layer, sequence_length, true);
  return {
      .layers = model.layers,
      .embedding = embedding_parameters / layer_parameters / 2,
      .head =
          (model_flops_per_token(head, sequence_length, true) / layer_flops + head_parameters / layer_parameters) / 2};
}

std::vector<int64_t> split_layers(const StageCosts& costs, const ChunkPlacement& placement) {
  const int64_t chunks = placement.num_chunks();
  CHECK(chunks <= costs.layers, "{} layers for {} chunks, and each needs one", costs.layers, chunks);
  std::vector<int64_t> layers(static_cast<size_t>(chunks), 1);
  std::vector<double> chunk_loads(layers.size(), 1);
  chunk_loads.front() += costs.embedding;
  chunk_loads.back() += costs.head;
  std::vector<double> loads(static_cast<size_t>(placement.stages), 0);
  for (int64_t c = 0; c < chunks; c++)
    loads[static_cast<size_t>(placement.stage_of(c))] += chunk_loads[static_cast<size_t>(c)];
  for (int64_t left = costs.layers - chunks; left > 0; left--) {
    const size_t stage = lightest(loads);
    std::vector<double> own;
    const auto of_stage = [&](size_t c) {
      return static_cast<size_t>(placement.model_chunk(static_cast<int64_t>(stage), static_cast<int64_t>(c)));
    };
    for (size_t c = 0; c < static_cast<size_t>(placement.virtual_stages); c++) own.push_back(chunk_loads[of_stage(c)]);
    const size_t chunk = of_stage(lightest(own));
    layers[chunk]++;
    chunk_loads[chunk]++;
    loads[stage]++;
  }
  return layers;
}

}  // namespace megalith
