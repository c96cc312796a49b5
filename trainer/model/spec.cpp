#include "trainer/model/spec.h"

#include <cmath>

namespace megalith {

namespace {

ParamSpec table(std::string name, Shape shape, double std, Split split = Split::none) {
  return {.name = std::move(name), .shape = shape, .init_std = std, .init_value = 0, .decay = true, .split = split};
}
ParamSpec matrix(std::string name, Shape shape, double std, Split split, int row_groups = 1) {
  ParamSpec spec = table(std::move(name), shape, std, split);
  spec.row_groups = row_groups;
  return spec;
}
ParamSpec vector(std::string name, int64_t size, double value, Split split = Split::none, int row_groups = 1) {
  return {.name = std::move(name),
          .shape = {size},
          .init_std = 0,
          .init_value = value,
          .decay = false,
          .split = split,
          .row_groups = row_groups};
}

}  // namespace

std::vector<UnitSpec> model_spec(const ModelConfig& model) {
  const int64_t C = model.hidden, F = 4 * model.hidden, V = model.vocab;
  const double std = 0.02, residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(model.layers));

  std::vector<UnitSpec> units;
  ParamSpec tokens = table("wte.weight", {V, C}, std, Split::rows);
  // 16 bytes of bf16 logits; where it costs next to nothing, whole tiles of a GPU's GEMM.
  tokens.row_multiple = model.vocab >= 8192 ? 128 : 8;
  units.push_back({"token table", {tokens}});
  units.push_back({"position table", {table("wpe.weight", {model.context, C}, 0.01)}});
  for (int64_t i = 0; i < model.layers; i++) {
    const std::string h = fmt::format("h.{}.", i);
    // clang-format off
    units.push_back({fmt::format("block {}", i), {
        vector(h + "ln_1.weight", C, 1),
        vector(h + "ln_1.bias", C, 0),
        matrix(h + "attn.c_attn.weight", {3 * C, C}, std, Split::rows, 3),
        vector(h + "attn.c_attn.bias", 3 * C, 0, Split::rows, 3),
        matrix(h + "attn.c_proj.weight", {C, C}, residual_std, Split::columns),
        vector(h + "attn.c_proj.bias", C, 0),
        vector(h + "ln_2.weight", C, 1),
        vector(h + "ln_2.bias", C, 0),
        matrix(h + "mlp.c_fc.weight", {F, C}, std, Split::rows),
        vector(h + "mlp.c_fc.bias", F, 0, Split::rows),
        matrix(h + "mlp.c_proj.weight", {C, F}, residual_std, Split::columns),
        vector(h + "mlp.c_proj.bias", C, 0)}});
    // clang-format on
  }
  units.push_back({"final norm", {vector("ln_f.weight", C, 1), vector("ln_f.bias", C, 0)}});

  uint64_t id = 0;
  for (UnitSpec& unit : units)
    for (ParamSpec& param : unit.params) param.id = id++;
  return units;
}

int64_t num_parameters(const std::vector<UnitSpec>& spec) {
  int64_t sum = 0;
  for (const UnitSpec& unit : spec)
    for (const ParamSpec& param : unit.params) sum += param.shape.numel();
  return sum;
}

double model_flops_per_token(const ModelConfig& model, int64_t sequence_length, bool causal) {
  const auto h = static_cast<double>(model.hidden), L = static_cast<double>(model.layers);
  const double multiplying = 12 * L * h * h + static_cast<double>(model.vocab) * h;
  return 6 * multiplying + (causal ? 6 : 12) * L * h * static_cast<double>(sequence_length);
}

}  // namespace megalith
