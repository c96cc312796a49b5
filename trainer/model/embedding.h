// The bottom of the model: x = dropout(table[token] + positions[position]); with rotary positions (attention.h) the
// second term is absent.
#pragma once

#include <span>

#include "configs/config.h"
#include "trainer/model/layer.h"

namespace megalith {

// A matrix (vocabulary, C) whose rows are split and padded: the embedding, or the matrix of an untied head.
ParamSpec token_matrix(const std::string& name, const ModelConfig& config);

class Embedding {
 public:
  // Declares one unit for the embedding and, if positions are learned, one for their table; forward and backward take
  // their tensors in this order.
  Embedding(Declarations& model, const ModelConfig& config);

  const std::vector<size_t>& units() const { return units_; }
  // Returns the embedding's matrix, token_matrix(), in the first unit.
  Param table() const { return table_; }

  // x (R, C) written; tokens (N) i32, sequences of T.
  void forward(const Context& c, std::span<const UnitTensors> w, Tensor tokens, Tensor x) const;

  // As above for runs of tokens at any positions: `count` tokens from a position on, one run after the other.
  struct PositionRange {
    int64_t first, count;
  };
  void forward(const Context& c, std::span<const UnitTensors> w, Tensor tokens, std::span<const PositionRange> runs,
               Tensor x) const;

  // dw accumulates, unless it is frozen; dx (R, C) is used up.
  void backward(const Context& c, std::span<const UnitTensors> dw, Tensor tokens, Tensor dx) const;

 private:
  Tensor positions(std::span<const UnitTensors> t) const { return units_.size() > 1 ? t[1][positions_] : Tensor{}; }

  std::vector<size_t> units_;
  Param table_, positions_{};
  int32_t site_;
};

}  // namespace megalith
