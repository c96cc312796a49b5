// The whole model, forward and backward, against its plain twin in double precision: loss, and the gradient of every
// parameter as the twin's finite differences give it; and what must not change a bit of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "tests/long_tests.h"
#include "tests/pure/plain_model.h"
#include "tests/pure/small_run.h"

namespace megalith {
namespace {

using Values = std::map<std::string, std::vector<float>>;  // by parameter

// Weights that hide nothing: biases away from 0, norms away from 1.
Values random_weights(const ModelConfig& model) {
  std::mt19937 random(7);
  Values all;
  for (const UnitSpec& unit : model_spec(model))
    for (const ParamSpec& param : unit.params) {
      std::normal_distribution<float> normal(static_cast<float>(param.init_value), 0.2f);
      auto& values = all[param.name];
      values.resize(static_cast<size_t>(param.shape.numel()));
      for (float& v : values) v = normal(random);
    }
  return all;
}

Config config_of(double dropout) {
  Config config = small_config();
  config.model.layers = 2;
  config.model.dropout = dropout;
  return config;
}

struct Result {
  double loss = 0, evaluated = 0;
  Values gradients;
};

// One step from the random weights, on sequences 10 to 14 of the text and in step 3: nothing starts at 0.
constexpr int64_t first_sequence = 10, the_step = 3;
Result one_step(const Config& config) {
  SmallRun run(config);
  const Values weights = random_weights(config.model);
  for (Unit& unit : run.units())
    for (const PlacedParam& param : unit.plan().params) {
      const std::vector<float>& values = weights.at(param.spec.name);
      std::copy(values.begin(), values.end(), unit.master().data<float>() + param.offset);
    }
  run.trainer.weights_loaded();
  Result result;
  const Feed feed = feed_text(config, first_sequence);
  result.evaluated = run.trainer.evaluate(config.batch.global_batch_size, feed);
  StepScalars scalars;
  run.trainer.step(the_step, first_sequence, feed, {}, &scalars);
  result.loss = scalars.loss;
  double squares = 0;
  for (const Unit& unit : run.units()) {
    for (const PlacedParam& param : unit.plan().params)
      result.gradients[param.spec.name] = values_of(unit.gradient().flat(param.range().begin, param.range().end));
    for (float g : values_of(unit.gradient())) squares += static_cast<double>(g) * static_cast<double>(g);
  }
  EXPECT_NEAR(scalars.grad_norm, std::sqrt(squares), 1e-9);
  return result;
}

struct Twin {
  PlainModel plain;
  std::vector<std::vector<int32_t>> sequences;
  Dropout dropout;

  explicit Twin(const Config& config) : plain{.model = config.model, .weights = {}} {
    for (const auto& [name, values] : random_weights(config.model))
      plain.weights[name] = {values.begin(), values.end()};
    const int64_t T = config.batch.sequence_length;
    for (int64_t i = first_sequence; i < first_sequence + config.batch.global_batch_size; i++) {
      sequences.emplace_back();
      for (int64_t t = 0; t <= T; t++) sequences.back().push_back(token_at(i * T + t, config.model.vocab));
    }
    dropout = {.p = config.model.dropout,
               .seed = static_cast<uint64_t>(config.train.seed),
               .step = the_step,
               .site = 0,
               .first_row = first_sequence * T};
  }
  double loss() const { return plain.loss(sequences, dropout); }

  // d loss / d h of weights + h * direction, at 0.
  double slope(const std::string& name, const std::vector<double>& direction) {
    constexpr double h = 1e-4;
    std::vector<double>& weights = plain.weights.at(name);
    const std::vector<double> before = weights;
    const auto at = [&](double distance) {
      for (size_t i = 0; i < weights.size(); i++) weights[i] = before[i] + distance * direction[i];
      return loss();
    };
    const double result = (at(h) - at(-h)) / (2 * h);
    weights = before;
    return result;
  }
  // The norm of the difference between this gradient and that of the loss.
  double distance(const std::string& name, const std::vector<float>& gradient) {
    double squares = 0;
    for (size_t i = 0; i < gradient.size(); i++) {
      std::vector<double> direction(gradient.size(), 0);
      direction[i] = 1;
      squares += std::pow(static_cast<double>(gradient[i]) - slope(name, direction), 2);
    }
    return std::sqrt(squares);
  }
};

double norm(const std::vector<float>& v) {
  double sum = 0;
  for (float x : v) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

// The choices of [model], alone and together, and dropout.
struct Choice {
  std::string name;
  std::vector<std::string> keys;
  double dropout = 0;
};
void PrintTo(const Choice& c, std::ostream* to) { *to << c.name; }

Config config_of(const Choice& choice) {
  Config config = config_of(choice.dropout);
  for (const std::string& key : choice.keys) {
    const size_t equals = key.find('=');
    set_shape_value(config.model, key.substr(0, equals), key.substr(equals + 1), key);
  }
  check_shape(config.model, "a choice");
  return config;
}

std::vector<Choice> choices() {
  const std::vector<Choice> all{
      {"gpt2", {}},
      {"rms_norm", {"norm=rms", "norm_epsilon=1e-2"}},
      {"layer_norm_of_another_epsilon", {"norm_epsilon=0.1"}},
      {"no_bias", {"bias=false", "qkv_bias=false"}},
      {"bias_of_qkv_alone", {"bias=false"}},
      {"all_but_the_bias_of_qkv", {"qkv_bias=false"}},
      {"untied_head", {"tied_head=false"}},
      {"gelu_by_erf", {"activation=gelu_erf"}},
      {"swiglu", {"activation=swiglu", "feed_forward=22"}},
      {"rotary", {"positions=rotary"}},
      {"rotary_in_part", {"positions=rotary", "rotary_share=0.5", "rotary_base=30.0"}},
      {"rotary_scaled",
       {"positions=rotary", "head_size=8", "rotary_base=200.0", "rotary_factor=4.0", "rotary_context=40"}},
      {"one_key_value_head", {"key_value_heads=1"}},
      {"wide_heads", {"head_size=7"}},
      {"parallel_residual", {"parallel_residual=true"}},
      {"parallel_residual_without_bias", {"parallel_residual=true", "bias=false"}},
      {"norms_of_q_and_k", {"query_key_norm=true", "positions=rotary", "norm_epsilon=1e-3"}},
      {"llama",
       {"norm=rms", "bias=false", "qkv_bias=false", "activation=swiglu", "feed_forward=22", "positions=rotary",
        "heads=6", "key_value_heads=2", "head_size=6", "tied_head=false"}},
      {"neox",
       {"parallel_residual=true", "positions=rotary", "rotary_share=0.4", "activation=gelu_erf", "tied_head=false"}},
      {"rms_norm_without_biases", {"norm=rms", "bias=false", "qkv_bias=false", "activation=swiglu", "tied_head=false"}},
  };
  std::vector<Choice> with_dropout;
  for (Choice c : all)
    for (const double p : {0.0, 0.3}) with_dropout.push_back({c.name + (p > 0 ? "_with_dropout" : ""), c.keys, p});
  return with_dropout;
}

class Gradients : public testing::TestWithParam<Choice> {};
INSTANTIATE_TEST_SUITE_P(Of, Gradients, testing::ValuesIn(choices()), [](const auto& p) { return p.param.name; });

// Single elements find a wrong index, a direction of random signs through all elements finds what they miss.
TEST_P(Gradients, AreTheDifferencesOfTheLoss) {
  const Config config = config_of(GetParam());
  const Result result = one_step(config);
  Twin twin(config);
  EXPECT_NEAR(result.loss, twin.loss(), 2e-6 * twin.loss());

  double whole = 0;
  for (const auto& [name, gradient] : result.gradients) whole += norm(gradient) * norm(gradient);
  whole = std::sqrt(whole);

  std::mt19937 random(3);
  constexpr double tolerance = 1e-5;
  for (const auto& [name, gradient] : result.gradients) {
    // Some gradients are 0 by nature (of the key's bias), so the size of the whole counts as well.
    const double scale = norm(gradient) + 1e-3 * whole;
    std::vector<size_t> elements(gradient.size());
    for (size_t i = 0; i < elements.size(); i++) elements[i] = i;
    std::shuffle(elements.begin(), elements.end(), random);
    elements.resize(std::min(elements.size(), static_cast<size_t>(taken("Gradients.AreTheDifferencesOfTheLoss"))));
    for (size_t i : elements) {
      std::vector<double> direction(gradient.size(), 0);
      direction[i] = 1;
      EXPECT_NEAR(static_cast<double>(gradient[i]), twin.slope(name, direction), tolerance * scale) << name << " " << i;
    }
    for (int k = 0; k < 3; k++) {
      std::vector<double> direction(gradient.size());
      double along = 0;
      for (size_t i = 0; i < direction.size(); i++) {
        direction[i] = random() % 2 ? 1 : -1;
        along += direction[i] * static_cast<double>(gradient[i]);
      }
      EXPECT_NEAR(along, twin.slope(name, direction), 5 * tolerance * scale) << name << " along random signs";
    }
  }
}

TEST_P(Gradients, NoParameterIsForgotten) {
  const Config config = config_of(GetParam());
  for (const auto& [name, gradient] : one_step(config).gradients) EXPECT_GT(norm(gradient), 1e-3) << name;
}

TEST_P(Gradients, RecomputeChangesNoBit) {
  Config config = config_of(GetParam());
  const Result kept = one_step(config);
  using Kind = ActivationCheckpointing::Kind;
  for (const ActivationCheckpointing& way : {ActivationCheckpointing{Kind::selective},
                                             {Kind::each},
                                             {Kind::group, 1},
                                             {Kind::group, 2},
                                             {Kind::contiguous}}) {
    SCOPED_TRACE(to_string(way));
    config.memory.activation_checkpointing = way;
    const Result recomputed = one_step(config);
    EXPECT_EQ(kept.loss, recomputed.loss);
    EXPECT_EQ(kept.gradients, recomputed.gradients);
  }
}

TEST_P(Gradients, TheSameRunTwiceIsTheSameBits) {
  const Config config = config_of(GetParam());
  const Result first = one_step(config), second = one_step(config);
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_EQ(first.gradients, second.gradients);
}

// `from_twin` tells how far a gradient's rounding leads from the twin's: two runs may be twice as far apart, though at
// most by twice the bound.
using FromTwin = std::function<double(const std::string& name)>;
void expect_close(const Result& a, const Result& b, double tolerance, const std::string& what,
                  const FromTwin& from_twin = {}) {
  EXPECT_NEAR(a.loss, b.loss, tolerance * a.loss) << what;
  EXPECT_NEAR(a.evaluated, b.evaluated, tolerance * a.evaluated) << what;
  for (const auto& [name, gradient] : a.gradients) {
    std::vector<float> difference = b.gradients.at(name);
    for (size_t i = 0; i < gradient.size(); i++) difference[i] -= gradient[i];
    const double apart = norm(difference), bound = tolerance * (norm(gradient) + 1e-2);
    if (from_twin && apart > bound && apart <= 2 * bound)
      EXPECT_LE(apart, 2 * from_twin(name)) << name << ", " << what;
    else
      EXPECT_LE(apart, bound) << name << ", " << what;
  }
}

TEST_P(Gradients, ChunksOfTheHeadChangeNothing) {
  Config config = config_of(GetParam());
  config.memory.lm_head_chunks = 1;
  const Result whole = one_step(config);
  for (int64_t chunks : {0, 2, 5, 14, 100}) {
    config.memory.lm_head_chunks = chunks;
    expect_close(whole, one_step(config), 1e-6, fmt::format("{} chunks", chunks));
  }
}

// The mean of several runs is what they have in common, as nearly as rounding lets it be known: each is off by its own.
Result mean_of(const std::vector<Result>& results) {
  const auto count = static_cast<double>(results.size());
  Result mean = results.front();
  mean.loss = mean.evaluated = 0;
  for (const Result& r : results) {
    mean.loss += r.loss / count;
    mean.evaluated += r.evaluated / count;
  }
  for (auto& [name, gradient] : mean.gradients)
    for (size_t i = 0; i < gradient.size(); i++) {
      double sum = 0;
      for (const Result& r : results) sum += static_cast<double>(r.gradients.at(name)[i]);
      gradient[i] = static_cast<float>(sum / count);
    }
  return mean;
}

// 5 sequences: with microbatches of 2, 3 or 8 some slots are masked, with 1 and 5 none is.
TEST_P(Gradients, MicrobatchesAndMaskedSlotsChangeNothing) {
  Config config = config_of(GetParam());
  const std::vector<int64_t> sizes{5, 1, 2, 3, 8};
  std::vector<Result> results;
  for (int64_t microbatch : sizes) {
    config.batch.microbatch_size = microbatch;
    results.push_back(one_step(config));
  }
  const Result mean = mean_of(results);
  Twin twin(config);
  const auto from_twin = [&](const std::string& name) { return twin.distance(name, results[0].gradients.at(name)); };
  for (size_t i = 0; i < sizes.size(); i++)
    expect_close(mean, results[i], 1e-6, fmt::format("microbatches of {}", sizes[i]), from_twin);
}

TEST(Evaluation, IsTheLossWithoutDropout) {
  const Result result = one_step(config_of(0.3));
  EXPECT_NEAR(result.evaluated, Twin(config_of(0)).loss(), 2e-6 * result.evaluated);
  EXPECT_GT(std::abs(result.evaluated - result.loss), 1e-3) << "and dropout makes a difference";
}

TEST(Dropout, DependsOnTheStepAndTheSeed) {
  Config config = config_of(0.3);
  const double loss = one_step(config).loss;
  config.train.seed++;
  EXPECT_GT(std::abs(one_step(config).loss - loss), 1e-4);
  Twin other(config_of(0.3));
  other.dropout.step++;
  EXPECT_GT(std::abs(other.loss() - loss), 1e-4) << "the twin knows the step, and agrees with the right one only";
}

TEST(Bf16, IsNearTheTwin) {
  Config config = config_of(0);
  const Result exact = one_step(config);
  config.precision.compute = ComputeType::bf16;
  const Result rounded = one_step(config);
  EXPECT_NE(exact.loss, rounded.loss);
  expect_close(exact, rounded, 0.05, "bf16");
}

TEST(Training, LearnsTheHalfThatCanBeLearnt) {
  Config config = small_config();
  config.batch.global_batch_size = 16;
  config.batch.microbatch_size = 8;
  config.optimizer.decay = Decay::constant;
  SmallRun run(config);
  const double before = run.evaluate(16), first = run.step(0).loss;
  EXPECT_NEAR(first, std::log(31.0), 0.05) << "no token is likelier than another at the start";
  for (int64_t s = 1; s < 80; s++) run.step(s);
  EXPECT_LT(run.evaluate(16), before - 0.5);
}

TEST(Training, VotesAreCounted) {
  SmallRun run(small_config());
  EXPECT_EQ(run.step(0).ranks.stop, 0);
  const StepScalars stop = run.step(1, {.stop = true}), save = run.step(2, {.save = true});
  EXPECT_EQ(stop.ranks.stop, 1);
  EXPECT_EQ(stop.ranks.save, 0);
  EXPECT_EQ(save.ranks.stop, 0);
  EXPECT_EQ(save.ranks.save, 1);
}

}  // namespace
}  // namespace megalith
