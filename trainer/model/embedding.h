// The bottom of the model: x = dropout(table[token] + positions[position]), without the latter where positions are
// rotary (attention.h).
#pragma once

#include <span>

#include "configs/config.h"
#include "trainer/model/layer.h"

namespace megalith {

// A matrix (vocabulary, C) whose rows are split and padded: the token table, or a head of its own.
ParamSpec token_matrix(const std::string& name, const ModelConfig& config);

class Embedding {
 public:
  // Declares two units, the token table and, if positions are learned, the position table, which its calls are given in
  // this order.
  Embedding(Declarations& model, const ModelConfig& config);

  const std::vector<size_t>& units() const { return units_; }
  // The table is in the first unit: token_matrix().
  Param table() const { return table_; }

  // x (R, C) written; tokens (N) i32, sequences of T.
  void forward(const Context& c, std::span<const UnitTensors> w, Tensor tokens, Tensor x) const;

  // The same of runs of tokens that stand anywhere: so many from that position on, one run after the other.
  struct PositionRange {
    int64_t first, count;
  };
  void forward(const Context& c, std::span<const UnitTensors> w, Tensor tokens, std::span<const PositionRange> runs,
               Tensor x) const;

  // dw accumulates, where it is not frozen; dx (R, C) is used up.
  void backward(const Context& c, std::span<const UnitTensors> dw, Tensor tokens, Tensor dx) const;

 private:
  Tensor positions(std::span<const UnitTensors> t) const { return units_.size() > 1 ? t[1][positions_] : Tensor{}; }

  std::vector<size_t> units_;
  Param table_, positions_{};
  int32_t site_;
};

}  // namespace megalith
