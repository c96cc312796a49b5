#include "trainer/model/model.h"

#include "configs/adapter.h"

namespace megalith {

namespace {

std::vector<Block> make_blocks(Declarations& declared, const ModelConfig& config) {
  std::vector<Block> blocks;
  for (int64_t layer = 0; layer < config.layers; layer++) blocks.emplace_back(declared, config, layer);
  return blocks;
}

}  // namespace

Model::Model(const ModelConfig& config)
    : embedding_(declared_, config), blocks_(make_blocks(declared_, config)), head_(declared_, config, embedding_) {
  for (const size_t unit : embedding_.units()) declared_.units[unit].embedding = true;
  for (const size_t unit : head_.units()) declared_.units[unit].head = true;
  for (UnitSpec& unit : declared_.units)
    for (ParamSpec& param : unit.params) param.trained = is_trained(config, param.name);
}

const ParamSpec& Model::token_embedding() const {
  return units()[embedding_.units().front()].params.at(static_cast<size_t>(embedding_.table().index));
}

std::vector<UnitSpec> model_spec(const ModelConfig& model) { return Model(model).units(); }

double model_flops_per_token(const ModelConfig& model, int64_t sequence_length, bool causal) {
  double multiplying = 0;
  for (const UnitSpec& unit : model_spec(model))
    for (const ParamSpec& param : unit.params)
      if (param.multiplies) multiplying += (param.trained ? 6 : 4) * static_cast<double>(param.shape.numel());
  const auto h = static_cast<double>(model.heads * model.size_of_head()), L = static_cast<double>(model.layers);
  return multiplying + (causal ? 6 : 12) * L * h * static_cast<double>(sequence_length);
}

}  // namespace megalith
