// The rows of bench_kernels: ops at the shapes of models.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/desk.h"

namespace megalith::bench {

struct Model {
  const char* name;
  int64_t B, T, C, H, V;
  int64_t columns;     // of the logits: V and padding
  int64_t parameters;  // size of a flat shard
};

struct Row {
  std::string op, shape;
  DType dtype;
  // Allocates and fills the op's tensors; returns a function that launches it.
  std::function<std::function<void()>(Desk&)> setup;
  std::string name() const { return op + "/" + shape + "/" + name_of(dtype); }
};

std::vector<Row> rows_of(const Model& model, DType type);
// Returns rows of the ops by which models differ from GPT-2: RMS norms, SwiGLU, rotary positions, norms of q and k,
// shared keys.
std::vector<Row> rows_of_choices(const Model& model, DType type);
// Products in 8 bits of Llama 3 8B's feed-forward layer with 8k tokens, the same in bf16, and the casts. A GPU without
// such products leaves their rows out.
std::vector<Row> fp8_rows();
// Attention by itself: about 16k tokens of width 2048.
std::vector<Row> attention_rows();
// The same for CPUs: 2k tokens of width 768 or a little less.
std::vector<Row> attention_rows_of_cpu(DType type);

}  // namespace megalith::bench
