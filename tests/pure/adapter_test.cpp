// Adapters and frozen parameters on one rank: what they compute is what a model whose weights have the adapters added
// computes, and nothing but them changes.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "checkpoints/peft_folder.h"
#include "configs/adapter.h"
#include "tests/message_of.h"
#include "tests/parts_of_columns.h"
#include "tests/pure/small_run.h"
#include "trainer/checkpointing/adapted_weights.h"
#include "trainer/checkpointing/held_shards.h"
#include "trainer/planner/dry_run.h"

namespace megalith {
namespace {

using Values = std::map<std::string, std::vector<float>>;  // by parameter

Config with_adapters(Config config, int64_t rank = 2, const std::string& modules = "all-linear") {
  config.model.layers = 2;
  config.adapter.rank = rank;
  config.adapter.alpha = 3;
  config.adapter.target_modules = modules;
  return resolve(config);
}

Config gpt2() { return small_config(); }
Config llama() {
  Config config = small_config();
  ModelConfig& model = config.model;
  model.hidden = 16;
  model.heads = 4;
  model.key_value_heads = 2;
  model.feed_forward = 21;
  model.norm = NormKind::rms;
  model.positions = Positions::rotary;
  model.activation = Activation::swiglu;
  model.bias = model.qkv_bias = model.tied_head = false;
  model.query_key_norm = true;
  return config;
}
Config neox() {
  Config config = small_config();
  config.model.hidden = 18;
  config.model.positions = Positions::rotary;
  config.model.rotary_share = 0.5;
  config.model.activation = Activation::gelu_erf;
  config.model.parallel_residual = true;
  config.model.tied_head = false;
  return config;
}

// Biases away from 0, norms away from 1, and no adapter that adds nothing.
Values random_weights(const ModelConfig& model) {
  std::mt19937 random(7);
  Values all;
  for (const UnitSpec& unit : model_spec(model))
    for (const ParamSpec& param : unit.params) {
      std::normal_distribution<float> normal(static_cast<float>(param.init_value), 0.2f);
      std::vector<float>& values = all[param.name];
      values.resize(static_cast<size_t>(param.shape.numel()));
      for (float& v : values) v = normal(random);
    }
  return all;
}

void set_weights(SmallRun& run, const Values& weights) {
  for (Unit& unit : run.units())
    for (const PlacedParam& param : unit.plan().params) {
      const std::vector<float>& values = weights.at(param.spec.name);
      std::copy(values.begin(), values.end(), unit.master().data<float>() + param.offset);
    }
  run.trainer.weights_loaded();
}

Values values_of_params(SmallRun& run, Tensor (Unit::*tensor)() const) {
  Values all;
  for (const Unit& unit : run.units())
    for (const PlacedParam& param : unit.plan().params)
      if (const Tensor values = (unit.*tensor)(); !values.empty())
        all[param.spec.name] =
            values_of(values.flat(param.offset, param.offset + param.spec.shape.numel()));  // without padding
  return all;
}

MemorySource source_of(const Values& weights, const ModelConfig& model) {
  std::map<std::string, MemorySource::Values> all;
  for (const UnitSpec& unit : model_spec(model))
    for (const ParamSpec& param : unit.params)
      all[std::string(parameters_path) + param.name] = {param.shape.dims(), weights.at(param.name)};
  return MemorySource(std::move(all));
}

ModelConfig without_adapters(ModelConfig model) {
  model.adapter = {};
  return model;
}

// Returns the weights with the adapters added, as a checkpoint's reader makes them: `window` elements at a time.
Values merged(const Values& weights, const ModelConfig& model, int64_t window = 1 << 20) {
  MemorySource adapters = source_of(weights, model);
  MergedSource source(std::make_unique<MemorySource>(source_of(weights, without_adapters(model))), adapters, model);
  Values all;
  for (const UnitSpec& unit : model_spec(without_adapters(model)))
    for (const ParamSpec& param : unit.params) {
      std::vector<float>& values = all[param.name];
      values.resize(static_cast<size_t>(param.shape.numel()));
      for (int64_t begin = 0; begin < param.shape.numel(); begin += window) {
        const int64_t end = std::min(begin + window, param.shape.numel());
        source.read(flat_shard(std::string(parameters_path) + param.name, param.shape.dims(), {begin, end}),
                    values.data() + begin);
      }
    }
  return all;
}

struct Family {
  const char* name;
  Config config;
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

class Adapters : public testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Families, Adapters,
                         testing::Values(Family{"gpt2", with_adapters(gpt2())},
                                         Family{"gpt2_attention", with_adapters(gpt2(), 3, "attn.c_proj\nc_fc\n")},
                                         Family{"llama", with_adapters(llama())},
                                         Family{"llama_q_and_v",
                                                with_adapters(llama(), 4, "q_proj\nv_proj\nup_proj\n")},
                                         Family{"neox", with_adapters(neox())}),
                         [](const auto& p) { return p.param.name; });

// Ranks of every layout read parts of columns.
TEST_P(Adapters, PartsOfColumnsAreThoseOfTheWhole) {
  const ModelConfig& model = GetParam().config.model;
  MemorySource adapters = source_of(random_weights(model), model);
  MergedSource merged(std::make_unique<MemorySource>(source_of(random_weights(model), without_adapters(model))),
                      adapters, model);
  for (const AdapterModule& module : adapter_modules(model)) {
    const std::string name = std::string(parameters_path) + "h.0." + module.linear + ".weight";
    test::expect_parts_of_columns(merged, name);
  }
  for (const UnitSpec& unit : model_spec(model))
    for (const ParamSpec& param : unit.params)
      if (param.name.starts_with("h.0.") && param.name.find("lora_") != std::string::npos)
        test::expect_parts_of_columns(adapters, std::string(parameters_path) + param.name);
}

// A base that was changed anywhere in its first and last elements of a tensor is another.
TEST(WeightsFingerprint, SeesTheFirstAndLastElements) {
  ModelConfig model = small_config().model;
  model.vocab = 5003;  // 75045 elements: more than are looked at
  const Values weights = random_weights(model);
  const auto fingerprint = [&](const Values& of) {
    MemorySource source = source_of(of, model);
    return weights_fingerprint(source, model);
  };
  const std::string before = fingerprint(weights);
  EXPECT_EQ(fingerprint(weights), before);
  for (const auto& [name, values] : weights)
    for (const size_t at : {size_t{0}, values.size() - 15, values.size() - 2, values.size() - 1}) {
      if (at >= values.size()) continue;
      Values other = weights;
      other.at(name)[at] += 1;
      EXPECT_NE(fingerprint(other), before) << name << ", element " << at;
    }
}

// y = (W + s B A) x, so dB = s dW A^T and dA = s B^T dW, of the rows that have the adapter.
TEST_P(Adapters, GiveTheLossAndTheGradientsOfTheMergedWeights) {
  const Config& config = GetParam().config;
  Config plain = config;
  plain.adapter = {};
  plain = resolve(plain);
  const Values weights = random_weights(config.model);
  SmallRun adapted(config), whole(plain);
  set_weights(adapted, weights);
  set_weights(whole, merged(weights, config.model));
  EXPECT_EQ(merged(weights, config.model, 5), merged(weights, config.model)) << "whatever is asked for at a time";
  EXPECT_NEAR(adapted.evaluate(5), whole.evaluate(5), 1e-5);
  const StepScalars step = adapted.step(0), same = whole.step(0);
  EXPECT_NEAR(step.loss, same.loss, 1e-5 * same.loss);
  const Values found = values_of_params(adapted, &Unit::gradient), all = values_of_params(whole, &Unit::gradient);
  double squares = 0;
  size_t adapters = 0;
  const auto inner = static_cast<size_t>(config.adapter.rank);
  for (int64_t layer = 0; layer < config.model.layers; layer++) {
    std::map<std::string, size_t> parts, rows_before;  // of each linear layer
    for (const AdapterModule& module : adapted_modules(config.model)) {
      const std::string stem = fmt::format("h.{}.{}", layer, module.linear);
      const std::vector<float>&a = weights.at(stem + ".lora_A.weight"), &b = weights.at(stem + ".lora_B.weight"),
            &da = found.at(stem + ".lora_A.weight"), &db = found.at(stem + ".lora_B.weight"),
            &dw = all.at(stem + ".weight");
      size_t first = 0;
      for (const AdapterModule& before : adapter_modules(config.model))
        if (before.linear == module.linear && before.part < module.part)
          first += static_cast<size_t>(rows_of(before, config.model));
      const size_t part = parts[stem]++, begin = rows_before[stem],
                   rows = static_cast<size_t>(rows_of(module, config.model));
      rows_before[stem] += rows;
      size_t in = 0;
      for (const UnitSpec& unit : model_spec(config.model))
        for (const ParamSpec& param : unit.params)
          if (param.name == stem + ".weight") in = static_cast<size_t>(param.shape[1]);
      const double scale = config.adapter.scale();
      for (size_t k = 0; k < inner; k++) {
        for (size_t o = 0; o < rows; o++) {
          double expected = 0;
          for (size_t i = 0; i < in; i++)
            expected += scale * static_cast<double>(dw[(first + o) * in + i]) *
                        static_cast<double>(a[(part * inner + k) * in + i]);
          EXPECT_NEAR(db[(begin + o) * inner + k], expected, 2e-5) << stem << " B " << o << " " << k;
          squares += expected * expected;
        }
        for (size_t i = 0; i < in; i++) {
          double expected = 0;
          for (size_t o = 0; o < rows; o++)
            expected +=
                scale * static_cast<double>(dw[(first + o) * in + i]) * static_cast<double>(b[(begin + o) * inner + k]);
          EXPECT_NEAR(da[(part * inner + k) * in + i], expected, 2e-5) << stem << " A " << k << " " << i;
          squares += expected * expected;
        }
      }
      adapters++;
    }
  }
  EXPECT_EQ(adapters, 2 * adapted_modules(config.model).size());
  EXPECT_NEAR(step.grad_norm, std::sqrt(squares), 1e-4 * step.grad_norm) << "and nothing else is in the norm";
}

TEST_P(Adapters, ChangeAndNothingElseDoes) {
  for (const ComputeType compute : {ComputeType::fp32, ComputeType::bf16}) {
    Config config = GetParam().config;
    config.precision.compute = compute;
    SmallRun run(config);
    const Values before = values_of_params(run, &Unit::master);
    run.steps(3);
    const Values after = values_of_params(run, &Unit::master);
    for (const auto& [name, values] : before) {
      if (is_of_adapter(name)) {
        EXPECT_NE(after.at(name), values) << name;
      } else {
        EXPECT_EQ(after.at(name), values) << name;
      }
    }
    const DType frozen = compute == ComputeType::bf16 ? DType::bf16 : DType::f32;
    for (const Unit& unit : run.units()) {
      EXPECT_EQ(unit.gradient().empty(), unit.plan().frozen) << unit.plan().name;
      EXPECT_EQ(unit.has_own_working(), !unit.plan().frozen && compute == ComputeType::bf16) << unit.plan().name;
      if (unit.plan().frozen) {
        EXPECT_EQ(unit.master().dtype(), frozen) << unit.plan().name;
      }
    }
    for (const Optimizer::StateTensors& state : run.trainer.optimizer().state())
      for (size_t u = 0; u < run.units().size(); u++)
        EXPECT_EQ(state.by_unit[u].numel() == 0, run.units()[u].plan().frozen) << state.path << " of unit " << u;
    for (const SavedTensor& saved : run.trainer.saved_tensors())
      EXPECT_FALSE(run.units()[saved.unit].plan().frozen) << "the base is not saved";
    run.evaluate(5);
    EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory);
  }
}

TEST_P(Adapters, AddNothingAtFirst) {
  const Config& config = GetParam().config;
  Config plain = config;
  plain.adapter = {};
  SmallRun adapted(config), whole(resolve(plain));
  EXPECT_EQ(adapted.evaluate(5), whole.evaluate(5)) << "B is 0, and the rest has the values it has without adapters";
}

TEST(Adapter, ValuesDependOnTheNameAlone) {
  SmallRun all(with_adapters(llama())), few(with_adapters(llama(), 2, "down_proj"));
  EXPECT_EQ(values_of_params(all, &Unit::master).at("h.1.mlp.c_proj.lora_A.weight"),
            values_of_params(few, &Unit::master).at("h.1.mlp.c_proj.lora_A.weight"));
}

TEST(Adapter, DropoutActsInTrainingAlone) {
  Config config = with_adapters(gpt2());
  const Values weights = random_weights(config.model);
  SmallRun without(config);
  config.adapter.dropout = 0.3;
  SmallRun with(resolve(config));
  for (SmallRun* run : {&without, &with}) set_weights(*run, weights);
  EXPECT_EQ(with.evaluate(5), without.evaluate(5));
  EXPECT_NE(with.step(0).loss, without.step(0).loss);
}

// What is recomputed draws the same masks.
TEST(Adapter, RecomputationChangesNoBit) {
  Config config = with_adapters(llama());
  config.model.dropout = 0.1;
  config.adapter.dropout = 0.2;
  config = resolve(config);
  const Values weights = random_weights(config.model);
  SmallRun kept(config);
  set_weights(kept, weights);
  kept.steps(2);
  for (const auto kind : {ActivationCheckpointing::Kind::selective, ActivationCheckpointing::Kind::each}) {
    config.memory.activation_checkpointing.kind = kind;
    SmallRun run(config);
    set_weights(run, weights);
    run.steps(2);
    EXPECT_EQ(values_of_params(run, &Unit::master), values_of_params(kept, &Unit::master));
  }
}

// Each kind of parameter, and what a model has no gradients of at all.
TEST(Frozen, ParametersKeepTheirBitsAndTheOthersTheirGradients) {
  for (const Config& model : {gpt2(), llama(), neox()})
    for (const char* what : {"embeddings", "attention", "feed_forward", "norms", "h.0", "h.*.ln_1.*\nln_f", "*.weight",
                             "wte.weight", "wpe.weight", "head", "biases"}) {
      Config config = model;
      config.model.layers = 2;
      const Values weights = random_weights(config.model);
      const auto has = [&](const std::string& name) { return weights.contains(name); };
      if (std::string(what) == "head" && !has("lm_head.weight")) continue;
      if (std::string(what) == "wpe.weight" && !has("wpe.weight")) continue;
      if ((std::string(what) == "biases" || std::string(what) == "*.weight") && !has("ln_f.bias")) continue;
      SCOPED_TRACE(what);
      SmallRun whole(resolve(config));
      config.train.freeze = what;
      SmallRun run(resolve(config));
      for (SmallRun* each : {&whole, &run}) set_weights(*each, weights);
      EXPECT_EQ(run.step(0).loss, whole.step(0).loss);
      const Values gradients = values_of_params(run, &Unit::gradient), all = values_of_params(whole, &Unit::gradient),
                   after = values_of_params(run, &Unit::master);
      size_t frozen = 0;
      for (const auto& [name, values] : weights) {
        if (is_trained(run.config.model, name)) {
          EXPECT_EQ(gradients.at(name), all.at(name)) << name;
        } else {
          EXPECT_EQ(after.at(name), values) << name;
          EXPECT_FALSE(gradients.contains(name)) << name;
          frozen++;
        }
      }
      EXPECT_GT(frozen, 0u);
      std::set<std::string> saved;
      for (const SavedTensor& tensor : run.trainer.saved_tensors())
        if (tensor.path.empty())
          for (const PlacedParam& param : run.units()[tensor.unit].plan().params) saved.insert(param.spec.name);
      EXPECT_EQ(saved.size(), weights.size()) << "checkpoints hold the frozen ones as well";
    }
}

TEST(Adapter, ThePlanSaysWhatIsTrainedAndWhatThatSaves) {
  Config config = with_adapters(gpt2());
  config.precision.compute = ComputeType::bf16;
  const std::string text = report(config, dry_run(config, 1));
  int64_t adapters = 0, all = 0;
  for (const UnitSpec& unit : model_spec(config.model))
    for (const ParamSpec& param : unit.params) (is_of_adapter(param.name) ? adapters : all) += param.shape.numel();
  EXPECT_NE(text.find(fmt::format("trained: {} parameters", adapters)), std::string::npos) << text;
  EXPECT_NE(
      text.find(fmt::format("the other {} are frozen, in bf16, without gradients and optimizer state: 2 bytes each "
                            "instead of 18",
                            all)),
      std::string::npos)
      << text;
}

// 16 GB of weights, and little more: of full training not even the optimizer's state would fit.
TEST(Adapter, EightBillionFrozenParametersFitOnAGpuOf24Gigabytes) {
  Config config = load_config(MEGALITH_SOURCE_DIR "/configs/llama3_8b_h100.toml",
                              {"adapter.rank=16", "parallel.pipeline_parallel_degree=1", "batch.sequence_length=2048",
                               "parallel.sharding_strategy=no_shard", "memory.activation_checkpointing=each"});
  const MemorySizes memory = rehearse(config, make_plan(config, 1, 0)).memory;
  EXPECT_GT(memory.total(MemoryPlace::device), int64_t{2} * 8'000'000'000);
  EXPECT_LT(memory.total(MemoryPlace::device), 20'000'000'000);
}

TEST(Frozen, WhatCannotBeIsRefused) {
  Config config = small_config();
  config.train.freeze = "embedding";
  const auto refused = [](const std::string& message, const std::string& words) {
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  refused(message_of([&] { SmallRun run(resolve(config)); }),
          "train.freeze names embedding, which is neither a parameter");
  config.train.freeze = "*";
  refused(message_of([&] { SmallRun run(resolve(config)); }), "leaves no parameter to train");
  config.batch.microbatch_size = 1;
  config.adapter.rank = 2;
  refused(message_of([&] { validate(resolve(config)); }), "has no effect with adapter.rank = 2");
  config.train.freeze.clear();
  config.adapter.target_modules = "q_proj";
  refused(message_of([&] { validate(resolve(config)); }),
          "adapter.target_modules names q_proj, which is not a linear layer of this model; it has c_attn, c_proj, "
          "c_fc, c_proj");
}

}  // namespace
}  // namespace megalith
