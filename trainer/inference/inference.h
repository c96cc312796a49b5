// Using a trained model: `megalith generate` and `megalith evaluate`. One process, weights only, on the CPU or the GPU
// that is selected.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/parallel/stage.h"

namespace megalith {

struct Sampling {
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 50;        // sample among this many most likely tokens; 0: all
  uint64_t seed = 1;
};

struct EvaluationResult {
  double loss = 0;  // nats a token
  int64_t tokens = 0;
  int64_t bytes = 0;  // of text; 0 without a tokenizer
};

// The weights of one of our checkpoints, or of a Hugging Face GPT-2 folder, ready to compute in f32.
class Inference {
 public:
  // `path` as in open_weights. `tokenizer`: a folder; empty: the one that the weights came with.
  Inference(const std::string& path, const std::string& tokenizer, World where = World::cpu);
  ~Inference();

  // Continues the prompt by `count` tokens or until the end of the text; text goes to `out` as it is generated.
  void generate(const std::string& prompt, int64_t count, const Sampling& sampling,
                const std::function<void(std::string_view)>& out);

  // Mean loss over a token file: every sample of length T (0: the model's context) once, or the first `limit` of them.
  EvaluationResult evaluate(const std::string& data, int64_t T, int64_t limit,
                            const std::function<void(double)>& progress);

 private:
  struct Engine;
  std::unique_ptr<Engine> make_engine(int64_t B, int64_t T) const;

  World where_;
  WeightSource weights_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace megalith
