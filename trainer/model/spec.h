// The parameters of a model: the global shape of each, how it starts, whether it decays, how tensor parallelism splits
// it, and how Hugging Face's GPT-2, whose names these are, stores it. A layer declares its own as it is made, so the
// list of them follows from the layers. Matrices are (out, in).
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

enum class Split : uint8_t {
  none,
  rows,     // output features, heads or vocabulary are shared out
  columns,  // input features are shared out; the products are then summed
};

// Rows that are split by themselves, in whole blocks: each part has its share of the blocks. Of fewer blocks than parts
// each is whole on several parts, neighbours, and a part's gradient is then its share of the block's.
struct RowGroup {
  int64_t rows = 0;
  int64_t block = 1;
  bool operator==(const RowGroup&) const = default;

  // Returns how many of them each of so many parts has.
  int64_t rows_of_part(int64_t parts) const {
    const int64_t blocks = rows / block, holders = parts > blocks ? parts / blocks : 1;
    return rows / (parts / holders);
  }
};

struct ParamSpec {
  std::string name;
  Shape shape{};          // global
  double init_std = 0;    // normal(0, std); 0: constant
  double init_value = 0;  // the constant
  bool decay = false;     // weight decay: matrices and tables, not vectors
  bool multiplies =
      false;  // a product's factor: a product writes its gradient as a whole; other gradients are added up
  Split split = Split::none;
  // It is not split, but used with what is: in each head, or as a matrix of an adapter beside the one that is split. So
  // each part computes a share of its gradient, that of its heads or features.
  bool partial_gradient = false;
  std::vector<RowGroup> row_groups{};  // row splits apply within each: q, k, v, in heads; empty: one of all rows
  int64_t row_multiple = 1;            // rows of a part are padded to a multiple of this
  bool stored_transposed = false;      // by Hugging Face: [in, out]
  bool trained = true;                 // else frozen
  // The key of its initial values: the position in the whole list, or of adapters a hash of the name, so that one does
  // not depend on which others there are.
  uint64_t id = 0;
};

// A unit is gathered, reduced and recomputed as one: a layer, or a part of the model's ends. A unit that both the
// embedding and the head use is tied.
struct UnitSpec {
  std::string name;
  bool embedding = false, head = false;  // it is used there
  std::vector<ParamSpec> params{};

  bool is_layer() const { return !embedding && !head; }
};

// Returns the units that the layers of a model declare (model.h), in their order.
std::vector<UnitSpec> model_spec(const ModelConfig& model);

// Model FLOPs of forward and backward for one token, counted as in Narayanan et al., arXiv 2104.04473, appendix:
// 6 for each weight that multiplies, 4 where it is frozen, plus attention. Causal attention counts the half that is
// computed; between documents that are kept apart as well, for how much of it is spared depends on the text.
double model_flops_per_token(const ModelConfig& model, int64_t sequence_length, bool causal);

int64_t num_parameters(const UnitSpec& unit);
int64_t num_parameters(const std::vector<UnitSpec>& spec);
int64_t num_trained(const std::vector<UnitSpec>& spec);

// A Param is the place of a parameter among those of its unit.
struct Param {
  int32_t index = -1;  // -1: the layer has no such parameter
};

// The tensors of a unit, in the order of its parameters: weights in the compute dtype, or their gradients in f32, which
// are empty where a parameter is frozen.
class UnitTensors {
 public:
  UnitTensors() = default;
  explicit UnitTensors(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {}

  // An empty tensor where there is no such parameter.
  Tensor operator[](Param p) const {
    return p.index < 0 || p.index >= std::ssize(tensors_) ? Tensor{} : tensors_[static_cast<size_t>(p.index)];
  }

 private:
  std::vector<Tensor> tensors_;
};

// The layers of a model declare here as they are made, each after the layer below it: their parameters, into the unit
// that was begun last, and their dropout.
class Declarations {
 public:
  // Returns the unit's index.
  size_t begin_unit(std::string name);
  Param parameter(ParamSpec spec);
  // The number of a mask (Dropout::site).
  int32_t dropout_site() { return sites_++; }

  std::vector<UnitSpec> units{};
  int64_t num_sites() const { return sites_; }

 private:
  uint64_t parameters_ = 0;
  int32_t sites_ = 0;
};

}  // namespace megalith
