#include "configs/rules.h"

#include <algorithm>
#include <utility>

namespace megalith {
namespace {

using Found = std::optional<Problem>;

// The rules of kernels/linear/fp8.h.
Found check_products(const Config& config) {
  const PrecisionConfig& precision = config.precision;
  const bool fp8 = precision.products == ProductType::fp8;
  for (const auto& [key, layers] : {std::pair{"precision.first_layers_in_bf16", precision.first_layers_in_bf16},
                                    {"precision.last_layers_in_bf16", precision.last_layers_in_bf16}}) {
    if (layers > 0 && !fp8)
      return problem(config, key, "has no effect with precision.products = \"{}\"; set 0 here, or \"fp8\" there",
                     to_string(precision.products));
  }
  if (!fp8) return {};
  const int64_t in_bf16 = precision.first_layers_in_bf16 + precision.last_layers_in_bf16;
  if (in_bf16 >= config.model.layers)
    return problem(config, "precision.products",
                   "is of no layer: precision.first_layers_in_bf16 and last_layers_in_bf16 are {} of model.layers = {} "
                   "together; lower them, or set \"compute\" here",
                   in_bf16, config.model.layers);
  const bool on_cpu = config.run.device == Device::cpu;
  if (precision.compute != ComputeType::bf16 && !(on_cpu && precision.compute == ComputeType::fp32))
    return problem(config, "precision.products",
                   "needs precision.compute = \"bf16\", but it is \"{}\"; set bf16 there, or \"compute\" here",
                   to_string(precision.compute));
  const ModelConfig& model = config.model;
  const int64_t degree = config.parallel.tensor_parallel_degree, multiple = 16;
  const int64_t heads = model.heads / degree, kv_heads = std::max<int64_t>(1, model.kv_heads() / degree);
  const int64_t rows =
      config.batch.microbatch_size * config.batch.sequence_length * (config.parallel.prescaled_batch ? 1 : degree);
  for (const auto& [what, size] :
       {std::pair{"model.hidden", model.hidden},
        {"the number of features of a rank's heads", heads * model.size_of_head()},
        {"the number of features of a rank's q, k and v", (heads + 2 * kv_heads) * model.size_of_head()},
        {"the number of features of a rank's feed-forward layer", model.features() / degree},
        {"the number of tokens of a microbatch", rows}})
    if (size % multiple != 0)
      return problem(config, "precision.products",
                     "needs sizes that are multiples of {}, but {} is {}; change it, or set \"compute\" here", multiple,
                     what, size);
  return {};
}

Found check_optimizer_state(const Config& config) {
  const PrecisionConfig& precision = config.precision;
  if (precision.master == StorageType::bf16 && precision.compute != ComputeType::bf16)
    return problem(config, "precision.master",
                   "has fewer digits than weights have with precision.compute = \"{}\"; set bf16 there, or fp32 here",
                   to_string(precision.compute));
  if (precision.stochastic_rounding && precision.master != StorageType::bf16 && precision.moments != StorageType::bf16)
    return problem(config, "precision.stochastic_rounding",
                   "has nothing to round: precision.master and precision.moments are fp32; set bf16 there, or false");
  return {};
}

Found check_loss_scale(const Config& config) {
  const PrecisionConfig& precision = config.precision;
  if (precision.loss_scale != 0 && precision.compute != ComputeType::fp16)
    return problem(config, "precision.loss_scale", "has no effect with precision.compute = \"{}\"; set 0",
                   to_string(precision.compute));
  if (precision.initial_loss_scale < precision.minimum_loss_scale)
    return problem(config, "precision.initial_loss_scale",
                   "is below precision.minimum_loss_scale = {}; raise the one or lower the other",
                   precision.minimum_loss_scale);
  return {};
}

}  // namespace

std::optional<Problem> precision_problem(const Config& config) {
  for (const auto check : {check_products, check_optimizer_state, check_loss_scale})
    if (Found found = check(config)) return found;
  return {};
}

}  // namespace megalith
