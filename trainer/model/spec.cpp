#include "trainer/model/spec.h"

#include <cmath>

namespace megalith {

namespace {

using Member = Tensor UnitTensors::*;

ParamSpec table(Member member, std::string name, Shape shape, double std) {
  return {.member = member, .name = std::move(name), .shape = shape, .init_std = std, .decay = true};
}
ParamSpec matrix(Member member, std::string name, Shape shape, double std, Split split, int row_groups = 1) {
  ParamSpec spec = table(member, std::move(name), shape, std);
  spec.split = split;
  spec.row_groups = row_groups;
  spec.stored_transposed = true;
  return spec;
}
ParamSpec vector(Member member, std::string name, int64_t size, double value, Split split = Split::none,
                 int row_groups = 1) {
  return {.member = member,
          .name = std::move(name),
          .shape = {size},
          .init_value = value,
          .split = split,
          .row_groups = row_groups};
}

}  // namespace

std::vector<UnitSpec> model_spec(const ModelConfig& model) {
  const int64_t C = model.hidden, F = model.feed_forward(), V = model.vocab;
  const double std = 0.02, residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(model.layers));

  std::vector<UnitSpec> units;
  using T = UnitTensors;
  ParamSpec tokens = table(&T::wte, "wte.weight", {V, C}, std);
  tokens.split = Split::rows;
  // 16 bytes of bf16 logits; where it costs next to nothing, whole tiles of a GPU's GEMM.
  tokens.row_multiple = model.vocab >= 8192 ? 128 : 8;
  units.push_back({UnitRole::tokens, "token table", {tokens}});
  units.push_back({UnitRole::positions, "position table", {table(&T::wpe, "wpe.weight", {model.context, C}, 0.01)}});
  for (int64_t i = 0; i < model.layers; i++) {
    const std::string h = fmt::format("h.{}.", i);
    // clang-format off
    units.push_back({UnitRole::layer, fmt::format("block {}", i), {
        vector(&T::ln1_w, h + "ln_1.weight", C, 1),
        vector(&T::ln1_b, h + "ln_1.bias", C, 0),
        matrix(&T::qkv_w, h + "attn.c_attn.weight", {3 * C, C}, std, Split::rows, 3),
        vector(&T::qkv_b, h + "attn.c_attn.bias", 3 * C, 0, Split::rows, 3),
        matrix(&T::proj_w, h + "attn.c_proj.weight", {C, C}, residual_std, Split::columns),
        vector(&T::proj_b, h + "attn.c_proj.bias", C, 0),
        vector(&T::ln2_w, h + "ln_2.weight", C, 1),
        vector(&T::ln2_b, h + "ln_2.bias", C, 0),
        matrix(&T::fc_w, h + "mlp.c_fc.weight", {F, C}, std, Split::rows),
        vector(&T::fc_b, h + "mlp.c_fc.bias", F, 0, Split::rows),
        matrix(&T::out_w, h + "mlp.c_proj.weight", {C, F}, residual_std, Split::columns),
        vector(&T::out_b, h + "mlp.c_proj.bias", C, 0)}});
    // clang-format on
  }
  units.push_back(
      {UnitRole::norm, "final norm", {vector(&T::lnf_w, "ln_f.weight", C, 1), vector(&T::lnf_b, "ln_f.bias", C, 0)}});

  uint64_t id = 0;
  for (UnitSpec& unit : units)
    for (ParamSpec& param : unit.params) param.id = id++;
  return units;
}

const UnitSpec& unit_of(const std::vector<UnitSpec>& spec, UnitRole role, int64_t layer) {
  int64_t before = 0;
  for (const UnitSpec& unit : spec)
    if (unit.role == role && before++ == layer) return unit;
  FAIL("layer {} of a model of {}", layer, before);
}

int64_t num_parameters(const UnitSpec& unit) {
  int64_t sum = 0;
  for (const ParamSpec& param : unit.params) sum += param.shape.numel();
  return sum;
}

int64_t num_parameters(const std::vector<UnitSpec>& spec) {
  int64_t sum = 0;
  for (const UnitSpec& unit : spec) sum += num_parameters(unit);
  return sum;
}

double model_flops_per_token(const ModelConfig& model, int64_t sequence_length, bool causal) {
  int64_t multiplying = 0;  // rows of the position table are added, vectors cost little
  for (const UnitSpec& unit : model_spec(model))
    for (const ParamSpec& param : unit.params)
      if (param.decay && unit.role != UnitRole::positions) multiplying += param.shape.numel();
  const auto h = static_cast<double>(model.hidden), L = static_cast<double>(model.layers);
  return 6 * static_cast<double>(multiplying) + (causal ? 6 : 12) * L * h * static_cast<double>(sequence_length);
}

}  // namespace megalith
