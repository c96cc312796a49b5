// Uses a trained model, for `megalith generate` and `megalith evaluate`, on a single rank or under mpirun, in any
// layout, on CPUs or GPUs. Each rank holds its part of the weights.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/samples/windows.h"
#include "data/tokenizers/special_text.h"
#include "data/tokenizers/tokenizer.h"
#include "trainer/checkpointing/model_use.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/inference/continued_texts.h"
#include "trainer/inference/questions.h"
#include "trainer/job/device_choice.h"
#include "trainer/parallel/stage.h"

namespace megalith {

struct GenerationRate {
  int64_t tokens = 0;  // added to all texts
  double seconds = 0;  // includes reading the prompts, excludes the weights
};

struct EvaluationResult {
  double loss = 0;  // nats a token
  int64_t tokens = 0;
  int64_t bytes = 0;  // text bytes; 0 without a tokenizer
  int64_t windows = 0, all_windows = 0;
  bool documents_apart = false;
  int64_t documents = 0;  // beginnings among the evaluated tokens, if documents are kept apart
};

struct TextEvaluation {
  std::string name;
  EvaluationResult result;
};

template <class Worker>
struct Engine;

// Runs a model on the ranks of a session. All calls are collective, with the same arguments on all ranks; a JobError
// reports the errors of all. Callbacks are called only on rank 0, whose results count.
class Inference {
 public:
  // `path` is as in open_weights; `tokenizer` a folder, or empty for the tokenizer of the weights. `options`:
  // section.key=value of [parallel] and [communication], precision.compute, memory.lm_head_chunks and run.device. By
  // default f32, with weights sharded over all ranks. `session` must outlive it.
  Inference(const std::string& path, const std::string& tokenizer, const std::vector<std::string>& options,
            const Session& session, SpecialTexts special_texts = SpecialTexts::ids);

  // Returns why a build with CUDA computes on the CPU without being told to, or "".
  const std::string& why_cpu() const { return device_.why_cpu; }

  // Continues each prompt as continue_texts does, after the tokens with which the tokenizer begins texts. positions()
  // is at most the model's context. out(prompt, sample, text) gets the added text; end(prompt, sample) ends it.
  GenerationRate generate(const std::vector<std::string>& prompts, const Generation& how,
                          const std::function<void(size_t, int64_t, std::string_view)>& out,
                          const std::function<void(size_t, int64_t)>& end = {});

  // Returns a decoder with the weights, with room for `places` texts of `positions` tokens.
  std::unique_ptr<Engine<Decoder>> open_decoder(int64_t places, int64_t positions);
  // Not collective. Returns the ids of a prompt, after those with which the tokenizer begins texts; `what` names it in
  // the message about a special token that is refused. Error: there is no tokenizer.
  std::vector<int32_t> prompt_ids(const std::string& prompt, const std::string& what) const;
  const Tokenizer& tokenizer() const;
  // Not collective. Returns how to use the model, from its training and its folder. Error: there is no tokenizer.
  const ModelUse& use() const;
  const ModelConfig& model() const { return weights_.model; }
  SpecialTexts special_texts() const { return special_texts_; }

  // Returns the mean loss over a token file, every target once: in windows of T tokens (0: the model's context), of
  // which the last may be shorter, or in the first `limit` windows. Keeps documents apart if training did.
  EvaluationResult evaluate(const std::string& data, int64_t T, int64_t limit,
                            const std::function<void(double)>& progress);
  // As above for each of the texts, which become tokens as in text_tokens.h. `limit` is per text.
  std::vector<TextEvaluation> evaluate_texts(const std::vector<std::string>& names, int64_t T, int64_t limit,
                                             const std::function<void(double)>& progress);

  // Returns the likelihood of each answer of each question.
  std::vector<Answered> answer(const std::vector<Question>& questions, const std::function<void(double)>& progress);

 private:
  Config config_for(int64_t T, int64_t microbatch) const;
  int64_t window_length(int64_t T) const;
  Config config_of_windows(int64_t length, int64_t microbatch) const;
  // Returns the evaluation of each; all have the same length.
  std::vector<EvaluationResult> evaluate(const std::vector<Windows>& windows, int64_t limit,
                                         const std::function<void(double)>& progress);
  // `observe`, unless empty, gets the observed values of this rank's rows.
  using Observer = std::function<void(const std::string& name, int64_t first_row, const std::vector<float>& rows)>;
  std::unique_ptr<Engine<Stage>> open_stage(const Config& config, const Observer& observe);
  // Returns the mean loss over `sequences`.
  double mean_loss(Engine<Stage>& engine, int64_t sequences, const Feed& read,
                   const std::function<void(double)>& progress);

  const Session& session_;
  const SpecialTexts special_texts_;
  WeightSource weights_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ModelUse use_;
  Config layout_;
  DeviceChoice device_;
};

}  // namespace megalith
