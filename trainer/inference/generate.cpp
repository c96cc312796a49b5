// Implements Inference::generate.
#include <algorithm>
#include <chrono>

#include "data/tokenizers/special_text.h"
#include "trainer/inference/engine.h"
#include "trainer/inference/inference.h"

namespace megalith {

std::unique_ptr<Engine<Decoder>> Inference::open_decoder(int64_t places, int64_t positions) {
  Config config;
  together(session_, [&] { config = config_for(weights_.model.context, 1); });
  const auto build = [&](const Plan& plan, Runtime& runtime) {
    return std::make_unique<Decoder>(plan, runtime, places, positions);
  };
  const auto rehearse = [](Decoder& decoder, const Plan&) { decoder.rehearse(); };
  return std::make_unique<Engine<Decoder>>(config, session_, device_.world, device_.ranks, *weights_.tensors, build,
                                           rehearse);
}

std::vector<int32_t> Inference::prompt_ids(const std::string& prompt, const std::string& what) const {
  std::vector<int32_t> ids = tokenizer().beginning();
  encode_with_specials(tokenizer(), prompt, ids, special_texts_, what);
  if (ids.empty()) ids.push_back(tokenizer().end_of_text());  // texts follow one another in training
  return ids;
}

GenerationRate Inference::generate(const std::vector<std::string>& prompts, const Generation& how,
                                   const std::function<void(size_t, int64_t, std::string_view)>& out,
                                   const std::function<void(size_t, int64_t)>& end) {
  const int64_t context = weights_.model.context;
  std::vector<std::vector<int32_t>> starts;
  int64_t longest = 1;
  together(session_, [&] {
    for (const std::string& prompt : prompts) {
      starts.push_back(prompt_ids(prompt, fmt::format("prompt {}", starts.size() + 1)));
      longest = std::max(longest, std::ssize(starts.back()));
    }
    config_for(context, 1);
  });
  const int64_t num_texts = static_cast<int64_t>(prompts.size()) * how.samples;
  if (how.tokens == 0 || num_texts == 0) {
    for (int64_t i = 0; i < num_texts && session_.rank() == 0 && end; i++)
      end(static_cast<size_t>(i / how.samples), i % how.samples);
    return {};
  }
  const auto engine = open_decoder(std::clamp<int64_t>(how.batch, 1, num_texts),
                                   std::min(context, longest + std::min(context, how.tokens)));
  const auto start = std::chrono::steady_clock::now();
  const int64_t added = continue_texts(*engine->worker, session_, *tokenizer_, starts, how, {.out = out, .end = end});
  return {.tokens = added, .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

}  // namespace megalith
