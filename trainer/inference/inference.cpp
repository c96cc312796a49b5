#include "trainer/inference/inference.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "kernels/philox.h"
#include "trainer/checkpointing/held_pieces.h"
#include "trainer/step/text_data.h"

namespace megalith {

namespace {

// Index of the next token. Logits are used up.
int64_t sample(std::vector<float>& logits, const Sampling& sampling, uint64_t position) {
  if (sampling.temperature == 0) return std::max_element(logits.begin(), logits.end()) - logits.begin();
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto k =
      sampling.top_k > 0 ? std::min<size_t>(static_cast<size_t>(sampling.top_k), order.size()) : order.size();
  auto logit = [&](int64_t id) { return static_cast<double>(logits[static_cast<size_t>(id)]); };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                    [&](int64_t a, int64_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  std::vector<double> weight(k);
  for (size_t i = 0; i < k; i++) weight[i] = std::exp((logit(order[i]) - logit(order[0])) / sampling.temperature);
  double rest = uniform(philox(sampling.seed, position, 0)[0]) * std::accumulate(weight.begin(), weight.end(), 0.0);
  for (size_t i = 0; i < k; i++) {
    rest -= weight[i];
    if (rest <= 0) return order[i];
  }
  return order[k - 1];
}

}  // namespace

// A model of fixed batch and length with its weights in memory. Runs every layer with scratch activations. The stage
// refers to the plan, so it stays where it is.
struct Inference::Engine {
  Plan plan;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Stage> stage;
  Tensor logits;

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  Engine(const ModelConfig& model, int64_t B, int64_t T, World where) {
    Config config;
    config.model = model;
    config.batch = {.sequence_length = T, .global_batch_size = B, .microbatch_size = B};
    config.parallel.sharding_strategy = ShardingStrategy::no_shard;
    config.precision.compute = ComputeType::fp32;
    config.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
    plan = make_plan(config, 1, 0);
    MemorySizes sizes;
    {
      Runtime dry(World::dry, {}, Mesh::dry(plan.mesh, 0));
      build(dry);
      run_once();
      sizes = dry.memory.peaks();
      stage.reset();
    }
    runtime = std::make_unique<Runtime>(where, sizes, Mesh::dry(plan.mesh, 0));
    build(*runtime);
  }

 private:
  void build(Runtime& in) {
    stage = std::make_unique<Stage>(plan, in, false);
    logits = in.memory[MemoryClass::saved].tensor(DType::f32, {1, plan.logit_columns});
  }
  void run_once() {
    stage->evaluate({.feed = {}, .batch = plan.batch, .dropout = {}});
    stage->run_layers({.feed = {}, .batch = plan.batch, .dropout = {}});
    stage->logits(0, logits);
  }
};

Inference::Inference(const std::string& path, const std::string& tokenizer, World where)
    : where_(where), weights_(open_weights(path)) {
  const std::string& tokenizer_path = tokenizer.empty() ? weights_.tokenizer : tokenizer;
  if (!tokenizer_path.empty()) tokenizer_ = load_tokenizer(tokenizer_path);
  CHECK(!tokenizer_ || tokenizer_->vocab_size() <= weights_.model.vocab,
        "the tokenizer in {} has {} ids, but the model in {} knows {}; give the tokenizer it was trained with by "
        "--tokenizer",
        tokenizer_path, tokenizer_->vocab_size(), weights_.path, weights_.model.vocab);
}

Inference::~Inference() = default;

std::unique_ptr<Inference::Engine> Inference::make_engine(int64_t B, int64_t T) const {
  auto engine = std::make_unique<Engine>(weights_.model, B, T, where_);
  Stream& s = engine->runtime->stream;
  for (Unit& unit : engine->stage->sharding().units()) {
    unit.clear(s);
    for (const HeldPiece& held : held_pieces(unit, std::string(parameters_path), unit.master(), {0, unit.plan().numel}))
      read_piece(s, held, *weights_.tensors);
  }
  return engine;
}

void Inference::generate(const std::string& prompt, int64_t count, const Sampling& sampling,
                         const std::function<void(std::string_view)>& out) {
  CHECK(tokenizer_, "{} names no tokenizer; give its folder with --tokenizer", weights_.path);
  std::vector<int32_t> ids;
  tokenizer_->encode(prompt, ids);
  if (ids.empty()) ids.push_back(tokenizer_->end_of_text());  // texts follow one another in training

  const int64_t context = weights_.model.context;
  const int64_t T = std::min(context, static_cast<int64_t>(ids.size()) + std::min(context, count));
  const auto engine = make_engine(1, T);
  out(prompt);
  for (int64_t i = 0; i < count; i++) {
    // The last T tokens; the model is causal, so what follows them in memory does not matter.
    const auto length = std::min<int64_t>(T, static_cast<int64_t>(ids.size()));
    const Feed feed = [&](Interval, Tensor tokens, Tensor targets) {
      std::fill_n(tokens.data<int32_t>(), T, 0);
      std::fill_n(targets.data<int32_t>(), T, -1);
      std::copy(ids.end() - length, ids.end(), tokens.data<int32_t>());
    };
    engine->stage->run_layers({.feed = feed, .batch = engine->plan.batch, .dropout = {}});
    engine->stage->logits(length - 1, engine->logits);
    std::vector<float> logits;
    engine->runtime->stream.download("read_logits", engine->logits, [&](Tensor host) {
      logits.assign(host.data<float>(), host.data<float>() + tokenizer_->vocab_size());
    });
    engine->runtime->stream.synchronize();
    const auto next = static_cast<int32_t>(sample(logits, sampling, static_cast<uint64_t>(i)));
    if (next == tokenizer_->end_of_text()) break;
    ids.push_back(next);
    out(tokenizer_->token_bytes(next));
  }
}

EvaluationResult Inference::evaluate(const std::string& data, int64_t T, int64_t limit,
                                     const std::function<void(double)>& progress) {
  Config config;
  config.model = weights_.model;
  config.batch.sequence_length = T > 0 ? T : weights_.model.context;
  CHECK(config.batch.sequence_length <= weights_.model.context, "sequences of {} tokens, but the model's context is {}",
        config.batch.sequence_length, weights_.model.context);
  const Loader loader = open_data("--data", data, config, false, 0, 1);
  const int64_t sequences = limit > 0 ? std::min(limit, loader.num_samples()) : loader.num_samples();
  const int64_t B = std::clamp<int64_t>(4096 / config.batch.sequence_length, 1, sequences);
  const auto engine = make_engine(B, config.batch.sequence_length);

  BatchPlan batch = engine->plan.batch;
  batch.batch = sequences;
  const Feed read = feed_from(loader, 0, weights_.model.vocab);
  const Feed feed = [&](Interval part, Tensor tokens, Tensor targets) {
    if (part.begin > 0) progress(static_cast<double>(part.begin) / static_cast<double>(sequences));
    read(part, tokens, targets);
  };
  engine->stage->evaluate({.feed = feed, .batch = batch, .dropout = {}});
  double loss = 0;
  engine->runtime->stream.download("read_loss", engine->stage->loss(),
                                   [&](Tensor host) { loss = *host.data<double>(); });
  engine->runtime->stream.synchronize();
  progress(1);
  return {.loss = loss,
          .tokens = sequences * config.batch.sequence_length,
          .bytes = tokenizer_ ? target_bytes(loader, sequences, *tokenizer_) : 0};
}

}  // namespace megalith
