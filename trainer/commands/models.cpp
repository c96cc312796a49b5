// megalith generate, evaluate.
#include <cstdio>

#include "trainer/commands/command.h"
#include "trainer/inference/inference.h"
#include "trainer/job/device_choice.h"
#include "trainer/train/metrics.h"
#include "trainer/train/progress_bar.h"

namespace megalith {

namespace {

struct ModelArguments {
  std::string checkpoint, tokenizer;
  Device device = Device::automatic;
  Inference open() const {
    const WorldChoice choice = choose_device(device);
    if (!choice.why_cpu.empty()) fmt::print(stderr, "on the CPU: {}\n", choice.why_cpu);
    return {checkpoint, tokenizer, choice.world};
  }
};

void add_model(CLI::App* app, ModelArguments& model) {
  app->add_option("--checkpoint", model.checkpoint, "checkpoint, run folder, or Hugging Face GPT-2 folder")->required();
  app->add_option("--tokenizer", model.tokenizer, "folder; default: the one the checkpoint was trained with");
  add_choice(app, "--device", model.device, "where to compute; auto: on a GPU where there is one");
}

}  // namespace

Command generate_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("generate", "Continue a text");
  struct Options {
    ModelArguments model;
    std::string prompt;
    int64_t tokens = 200;
    Sampling sampling;
  };
  auto o = std::make_shared<Options>();
  add_model(app, o->model);
  app->add_option("--prompt", o->prompt, "text to continue");
  add_number(app, "--tokens", o->tokens, "most tokens to add");
  add_number(app, "--temperature", o->sampling.temperature, "0: always the most likely token");
  add_number(app, "--top-k", o->sampling.top_k, "sample among this many most likely tokens; 0: all");
  app->add_option("--seed", o->sampling.seed, "another draws another text")->capture_default_str();
  return {app, [o] {
            o->model.open().generate(o->prompt, o->tokens, o->sampling, [](std::string_view text) {
              fmt::print("{}", text);
              std::fflush(stdout);
            });
            fmt::print("\n");
            return 0;
          }};
}

Command evaluate_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("evaluate", "Loss and bits per byte of a checkpoint on a token file");
  struct Options {
    ModelArguments model;
    std::string data;
    int64_t sequence_length = 0, sequences = 0;
  };
  auto o = std::make_shared<Options>();
  add_model(app, o->model);
  app->add_option("--data", o->data, "token file")->required();
  add_number(app, "--sequence-length", o->sequence_length, "0: the model's context");
  add_number(app, "--sequences", o->sequences, "only this many, from the first on; 0: all");
  return {app, [o] {
            ProgressBar bar;
            const EvaluationResult r = o->model.open().evaluate(o->data, o->sequence_length, o->sequences,
                                                                [&](double share) { bar.draw(share, "evaluating"); });
            bar.clear();
            fmt::print("loss {:.8f} nats a token over {} tokens", r.loss, r.tokens);
            if (r.bytes > 0) fmt::print(", {:.4f} bits per byte", bits_per_byte(r.loss, r.tokens, r.bytes));
            fmt::print("\n");
            return 0;
          }};
}

}  // namespace megalith
