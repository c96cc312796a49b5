// THE list of parameters: every weight of the model, its global shape, how it starts, whether it decays, and how tensor
// parallelism splits it. Names are those of Hugging Face's GPT-2; matrices are (out, in).
// Initial values: normal 0.02, residual projections divided by sqrt(2 L) (Radford et al., Language Models are
// Unsupervised Multitask Learners, 2019, section 2.3), and positions normal 0.01 (their code, src/model.py of
// openai/gpt-2).
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/base/tensor.h"

namespace megalith {

enum class Split : uint8_t {
  none,
  rows,     // output features, heads or vocabulary are shared out
  columns,  // input features are shared out; the products are then summed
};

struct ParamSpec {
  std::string name;
  Shape shape;        // global
  double init_std;    // normal(0, std); 0: constant
  double init_value;  // the constant
  bool decay;         // weight decay: matrices and tables, not vectors
  Split split = Split::none;
  int row_groups = 1;        // row splits apply within each group: 3 for q, k, v
  int64_t row_multiple = 1;  // rows of a part are padded to a multiple of this
  uint64_t id = 0;           // position in the whole list: the key of its initial values
};

// What is gathered, reduced and recomputed as one.
struct UnitSpec {
  std::string name;
  std::vector<ParamSpec> params;  // in the order of the matching struct of weights in block.h, embedding.h, head.h
};

// The token table (also the head's), the position table, one unit a layer, the final norm.
std::vector<UnitSpec> model_spec(const ModelConfig& model);

int64_t num_parameters(const std::vector<UnitSpec>& spec);

// Model FLOPs of forward and backward for one token, counted as in Narayanan et al., arXiv 2104.04473, appendix:
// 6 for each weight that multiplies, plus attention. Causal attention counts the half that is computed.
double model_flops_per_token(const ModelConfig& model, int64_t sequence_length, bool causal);

}  // namespace megalith
