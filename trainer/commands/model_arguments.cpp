#include "trainer/commands/model_arguments.h"

#include <cmath>
#include <cstdio>
#include <memory>

#include <fmt/ranges.h>

#include "configs/config.h"
#include "trainer/machine/machine.h"

namespace megalith {

CommunicationConfig ModelArguments::communication(bool waits) const {
  CommunicationConfig config = load_communication("", overrides);
  if (waits) config.timeout = 0;
  return config;
}

Inference ModelArguments::open(const Session& session) const {
  use_threads(session.ranks_on_this_node());
  std::vector<std::string> options{"run.device=" + to_string(device)};
  options.insert(options.end(), overrides.begin(), overrides.end());
  Inference inference(checkpoint, tokenizer, options, session, special_texts);
  if (session.rank() == 0 && !inference.why_cpu().empty()) fmt::print(stderr, "on the CPU: {}\n", inference.why_cpu());
  return inference;
}

void add_model(CLI::App* app, ModelArguments& model) {
  const auto first = std::make_shared<std::string>();
  app->add_option("model", *first, "run folder, checkpoint, or Hugging Face checkpoint");
  app->add_option("--checkpoint", model.checkpoint, "the model, if it is not the first word");
  app->parse_complete_callback([first, &model] {
    move_override(*first, model.overrides);
    if (first->empty() && model.checkpoint.empty()) throw CLI::RequiredError("model");
    if (!first->empty() && !model.checkpoint.empty())
      throw CLI::ValidationError("the model",
                                 fmt::format("{} and --checkpoint {}: give one", *first, model.checkpoint));
    if (!first->empty()) model.checkpoint = *first;
  });
}

void add_model_options(CLI::App* app, ModelArguments& model) {
  app->add_option("--tokenizer", model.tokenizer, "folder; default: the one the checkpoint was trained with");
  add_choice(app, "--device", model.device, "where to compute; auto: on a GPU if there is one");
  add_special_tokens(app, model.special_texts, "a text with one is an error");
  add_overrides(
      app, model.overrides,
      "section.key=value ... under mpirun: parallel.tensor_parallel_degree=2 and the like, as in train; the remaining "
      "ranks shard the weights. Also communication.*, precision.compute, precision.residual, memory.lm_head_chunks");
}

void add_sampling(CLI::App* app, SamplingArguments& a) {
  a.temperature = add_number(app, "--temperature", a.sampling.temperature, "0: always the most likely token");
  a.top_k = add_number(app, "--top-k", a.sampling.top_k, "sample among this many most likely tokens; 0: all");
  a.top_p = app->add_option("--top-p", a.sampling.top_p,
                            "sample among the fewest most likely tokens that together have this probability; 1: all")
                ->capture_default_str();
  a.penalty = app->add_option("--repetition-penalty", a.sampling.repetition_penalty,
                              "if above 1, makes tokens that the text has already less likely")
                  ->capture_default_str();
  a.min_new_tokens = add_number(app, "--min-new-tokens", a.least, "minimum number of tokens before one may end a text");
  app->add_flag("--show-special-tokens", a.shows_specials, "include special tokens in the text");
  app->add_option("--seed", a.sampling.seed, "seed of the sampling")->capture_default_str();
  app->footer(
      "generation_config.json in the model's folder replaces these defaults: temperature, top_k, top_p, "
      "repetition_penalty and min_new_tokens; and its tokens in eos_token_id end a text.");
}

void SamplingArguments::check() const {
  CHECK(sampling.top_p > 0 && sampling.top_p <= 1, "--top-p {} is not a probability; give one above 0, up to 1",
        sampling.top_p);
  CHECK(sampling.repetition_penalty > 0 && std::isfinite(sampling.repetition_penalty),
        "--repetition-penalty {}: give a number above 0; 1 has no effect", sampling.repetition_penalty);
}

std::vector<std::string> SamplingArguments::take_defaults(const GenerationConfig& config) {
  std::vector<std::string> taken, said;
  const auto take = [&](const CLI::Option* option, const auto& value, auto& to) {
    if (!value || option->count() > 0 || static_cast<double>(*value) == static_cast<double>(to)) return;
    to = *value;
    taken.push_back(fmt::format("{} {}", option->get_name(), *value));
  };
  take(temperature, config.temperature, sampling.temperature);
  take(top_k, config.top_k, sampling.top_k);
  take(top_p, config.top_p, sampling.top_p);
  take(penalty, config.repetition_penalty, sampling.repetition_penalty);
  take(min_new_tokens, config.min_new_tokens, least);
  if (!taken.empty()) said.push_back(fmt::format("from {}: {}", generation_config_file, fmt::join(taken, ", ")));
  if (!config.not_obeyed.empty())
    said.push_back(fmt::format("{} also has {}, which megalith does not support", generation_config_file,
                               fmt::join(config.not_obeyed, ", ")));
  return said;
}

}  // namespace megalith
