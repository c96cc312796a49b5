// The parameters of a model: for each its global shape, its initial values, whether it decays, how tensor parallelism
// splits it, and how Hugging Face's GPT-2, whose names these are, stores it. A layer declares its own parameters in its
// constructor, so the list follows from the layers. Matrices are (out, in).
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

enum class Split : uint8_t {
  none,
  rows,     // output features, heads or vocabulary are divided
  columns,  // input features are divided; the products are then summed
};

// Rows that are split separately, in whole blocks: each part has its share of the blocks. If there are fewer blocks
// than parts, each block is on several neighbouring parts, whose gradients are partial sums of the block's.
struct RowGroup {
  int64_t rows = 0;
  int64_t block = 1;
  bool operator==(const RowGroup&) const = default;

  // Returns how many rows each of `parts` parts has.
  int64_t rows_of_part(int64_t parts) const {
    const int64_t blocks = rows / block, holders = parts > blocks ? parts / blocks : 1;
    return rows / (parts / holders);
  }
};

struct ParamSpec {
  std::string name;
  Shape shape{};            // global
  double init_std = 0;      // normal(0, std); 0: constant
  double init_value = 0;    // the constant
  bool decay = false;       // weight decay: matrices and tables, not vectors
  bool multiplies = false;  // a factor of a product, which writes its gradient as a whole; other gradients accumulate
  bool fp8 = false;         // precision.products decides the type of its products
  Split split = Split::none;
  // The parameter is not split, but used together with split tensors: in each head, or as the unsplit matrix of an
  // adapter. So each part computes a share of its gradient, that of its heads or features.
  bool partial_gradient = false;
  // Row splits apply within each group: q, k, v, in heads; empty: one group of all rows.
  std::vector<RowGroup> row_groups{};
  int64_t row_multiple = 1;        // rows of a part are padded to a multiple of this
  bool stored_transposed = false;  // Hugging Face stores it as [in, out]
  bool trained = true;             // false: frozen
  // The key of its initial values: its position in the whole list or, for adapters, a hash of its name, so that an
  // adapter's values do not depend on which others exist.
  uint64_t id = 0;
};

// A unit is gathered, reduced and recomputed as a whole: a layer, or a part of the model's ends. A unit that both the
// embedding and the head use is tied.
struct UnitSpec {
  std::string name;
  bool embedding = false, head = false;  // which ends of the model use it
  std::vector<ParamSpec> params{};

  bool is_layer() const { return !embedding && !head; }
};

// Returns the units that the layers of a model declare (model.h), in their order.
std::vector<UnitSpec> model_spec(const ModelConfig& model);

// Returns model FLOPs of forward and backward for one token, counted as in Narayanan et al., arXiv 2104.04473,
// appendix: 6 for each weight that multiplies, 4 if it is frozen, plus attention. Causal attention counts the half that
// is computed. Attention between isolated documents is counted too, since the amount that is skipped depends on the
// text.
double model_flops_per_token(const ModelConfig& model, int64_t sequence_length, bool causal);

int64_t num_parameters(const UnitSpec& unit);
int64_t num_parameters(const std::vector<UnitSpec>& spec);
int64_t num_trained(const std::vector<UnitSpec>& spec);

// The position of a parameter in its unit.
struct Param {
  int32_t index = -1;  // -1: the layer has no such parameter
};

// The tensors of a unit, in the order of its parameters: weights in the compute dtype, or in e4m3 those that were cast
// for products in 8 bits (kernels/linear/fp8.h); or their gradients in f32, which are empty for frozen parameters.
class UnitTensors {
 public:
  // Returns an empty tensor if the layer has no such parameter.
  Tensor operator[](Param p) const { return find(tensors_, p); }
  // Returns 1 / scale (1) f32 of a weight in e4m3.
  Tensor unscale(Param p) const { return find(unscales_, p); }

  void set(size_t index, Tensor tensor) { put(tensors_, index, tensor); }
  void set(size_t index, Tensor tensor, Tensor unscale) {
    put(tensors_, index, tensor);
    put(unscales_, index, unscale);
  }

 private:
  static Tensor find(const std::vector<Tensor>& all, Param p) {
    return p.index < 0 || p.index >= std::ssize(all) ? Tensor{} : all[static_cast<size_t>(p.index)];
  }
  static void put(std::vector<Tensor>& all, size_t index, const Tensor& tensor) {
    if (all.size() <= index) all.resize(index + 1);
    all[index] = tensor;
  }

  std::vector<Tensor> tensors_, unscales_;
};

// The layers of a model declare here in their constructors, each after the layer below it: their parameters, into the
// unit begun last, and their dropout.
class Declarations {
 public:
  // Returns the unit's index.
  size_t begin_unit(std::string name);
  Param parameter(ParamSpec spec);
  // Returns the number of a new mask (Dropout::site).
  int32_t dropout_site() { return sites_++; }

  std::vector<UnitSpec> units{};
  int64_t num_sites() const { return sites_; }

 private:
  uint64_t parameters_ = 0;
  int32_t sites_ = 0;
};

}  // namespace megalith
