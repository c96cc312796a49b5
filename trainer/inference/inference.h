// Using a trained model: `megalith generate` and `megalith evaluate`, alone or under mpirun. Weights only, in any
// layout, on CPUs or GPUs; each rank holds its part.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/special_text.h"
#include "data/tokenizer.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/inference/questions.h"
#include "trainer/inference/sampling.h"
#include "trainer/job/device_choice.h"
#include "trainer/parallel/stage.h"

namespace megalith {

struct Generation {
  int64_t tokens = 200;                 // most that are added
  int64_t samples = 1;                  // of each prompt
  int64_t batch = 8;                    // texts that are continued at once
  std::vector<std::string> stops = {};  // a text ends before the first of them
  Sampling sampling = {};
};

// Ends the message of a result that is not finite.
constexpr const char* why_not_finite =
    "the model's weights, or what is computed from them in this type, are not; `megalith checkpoint inspect` tells of "
    "the weights, precision.compute=fp32 has the widest range";

// What was added to all texts, and the time that took, reading the prompts included and the weights not.
struct GenerationRate {
  int64_t tokens = 0;
  double seconds = 0;
};

struct EvaluationResult {
  double loss = 0;  // nats a token
  int64_t tokens = 0;
  int64_t bytes = 0;  // of text; 0 without a tokenizer
  int64_t windows = 0, all_windows = 0;
  bool documents_apart = false;
  int64_t documents = 0;  // that begin within the first tokens, where they are kept apart
};

// The weights of one of our checkpoints, or of a Hugging Face GPT-2 folder, on the ranks of a session. All calls are
// collective, with the same arguments on all ranks; a JobError is what any of them met. Results are those of rank 0,
// which alone calls back.
class Inference {
 public:
  // `path` as in open_weights. `tokenizer`: a folder; empty: the one that the weights came with. `options`:
  // section.key=value of the layout, as train has them: [parallel], [communication], precision.compute,
  // memory.lm_head_chunks and run.device. Without, f32 and weights sharded over all ranks. `session` must outlive it.
  Inference(const std::string& path, const std::string& tokenizer, const std::vector<std::string>& options,
            const Session& session, SpecialTexts special_texts = SpecialTexts::ids);

  // Why it computes on the CPU, where a build with CUDA does so unasked.
  const std::string& why_cpu() const { return device_.why_cpu; }

  // Continues each prompt by `tokens` tokens, or until the end of the text or a stop string. A text goes on from its
  // last `context` tokens; whenever the context is full, from the last half of it, which is read again from position 0.
  // out(prompt, sample, text) gets the text that was added, piece by piece and of several texts in turn, and
  // end(prompt, sample) ends it.
  GenerationRate generate(const std::vector<std::string>& prompts, const Generation& how,
                          const std::function<void(size_t, int64_t, std::string_view)>& out,
                          const std::function<void(size_t, int64_t)>& end = {});

  // Mean loss over a token file, every target once: in windows of T tokens (0: the model's context), of which the last
  // may be shorter, or in the first `limit` of them.
  // Documents are kept apart if the weights say that they were in training.
  EvaluationResult evaluate(const std::string& data, int64_t T, int64_t limit,
                            const std::function<void(double)>& progress);

  // Of each question, how likely each answer is.
  std::vector<Answered> answer(const std::vector<Question>& questions, const std::function<void(double)>& progress);

 private:
  const Tokenizer& tokenizer() const;
  Config config_for(int64_t T, int64_t microbatch) const;
  // The mean loss, over so many sequences; `see`, unless empty, gets what is observed of the rows that are here.
  using See = std::function<void(const std::string& name, int64_t first_row, const std::vector<float>& rows)>;
  double evaluate(const Config& config, int64_t sequences, const Feed& read,
                  const std::function<void(double)>& progress, const See& see);

  const Session& session_;
  const SpecialTexts special_texts_;
  WeightSource weights_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Config layout_;
  DeviceChoice device_;
};

}  // namespace megalith
