#include "trainer/commands/model_arguments.h"

#include <cstdio>

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

void add_model_options(CLI::App* app, ModelArguments& model) {
  app->add_option("--tokenizer", model.tokenizer, "folder; default: the one the checkpoint was trained with");
  add_choice(app, "--device", model.device, "where to compute; auto: on a GPU where there is one");
  add_special_tokens(app, model.special_texts, "a text with one is an error");
  add_overrides(app, model.overrides,
                "section.key=value ... under mpirun: parallel.tensor_parallel_degree=2 and the like, as in train; the "
                "rest of the ranks share the weights out. Also communication.*, precision.compute, precision.residual, "
                "memory.lm_head_chunks");
}

void add_sampling(CLI::App* app, Sampling& sampling) {
  add_number(app, "--temperature", sampling.temperature, "0: always the most likely token");
  add_number(app, "--top-k", sampling.top_k, "sample among this many most likely tokens; 0: all");
  app->add_option("--top-p", sampling.top_p,
                  "sample among the fewest most likely tokens that together have this probability; 1: all")
      ->capture_default_str();
  app->add_option("--seed", sampling.seed, "seed of the draws")->capture_default_str();
}

void check_sampling(const Sampling& sampling) {
  CHECK(sampling.top_p > 0 && sampling.top_p <= 1, "--top-p {} is not a probability; give one above 0, up to 1",
        sampling.top_p);
}

}  // namespace megalith
