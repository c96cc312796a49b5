// THE table of parameters: every weight of the model, its global shape, how it starts, whether it decays, how tensor
// parallelism splits it, and how Hugging Face's GPT-2, whose names these are, stores it. Matrices are (out, in).
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

// The tensors of a unit by role: weights in the compute dtype, or their gradients in f32. Those that are another unit's
// are empty. C width, F feed-forward width, tp the number of parts that heads, features and vocabulary are split into.
struct UnitTensors {
  Tensor wte;  // (V/tp, padded; C): the token table, also the head's
  Tensor wpe;  // (context, C): the position table
  // A layer.
  Tensor ln1_w, ln1_b;    // (C)
  Tensor qkv_w, qkv_b;    // (3C/tp, C), (3C/tp)
  Tensor proj_w, proj_b;  // (C, C/tp), (C)
  Tensor ln2_w, ln2_b;    // (C)
  Tensor fc_w, fc_b;      // (F/tp, C), (F/tp)
  Tensor out_w, out_b;    // (C, F/tp), (C)
  // The final norm.
  Tensor lnf_w, lnf_b;  // (C)
};

struct ParamSpec {
  Tensor UnitTensors::*member = nullptr;  // its role
  std::string name;
  Shape shape{};          // global
  double init_std = 0;    // normal(0, std); 0: constant
  double init_value = 0;  // the constant
  bool decay = false;     // weight decay: matrices and tables, not vectors
  Split split = Split::none;
  int row_groups = 1;              // row splits apply within each group: 3 for q, k, v
  int64_t row_multiple = 1;        // rows of a part are padded to a multiple of this
  bool stored_transposed = false;  // by Hugging Face: [in, out]
  uint64_t id = 0;                 // position in the whole list: the key of its initial values
};

enum class UnitRole : uint8_t { tokens, positions, layer, norm };

// What is gathered, reduced and recomputed as one.
struct UnitSpec {
  UnitRole role;
  std::string name;
  std::vector<ParamSpec> params;
};

// The token table (also the head's), the position table, one unit a layer, the final norm.
std::vector<UnitSpec> model_spec(const ModelConfig& model);

// The unit of that role; of the layers, `layer`. Error where there is none.
const UnitSpec& unit_of(const std::vector<UnitSpec>& spec, UnitRole role, int64_t layer = 0);

int64_t num_parameters(const UnitSpec& unit);
int64_t num_parameters(const std::vector<UnitSpec>& spec);

// Model FLOPs of forward and backward for one token, counted as in Narayanan et al., arXiv 2104.04473, appendix:
// 6 for each weight that multiplies, plus attention. Causal attention counts the half that is computed; between
// documents that are kept apart as well, for how much of it is spared depends on the text.
double model_flops_per_token(const ModelConfig& model, int64_t sequence_length, bool causal);

}  // namespace megalith
