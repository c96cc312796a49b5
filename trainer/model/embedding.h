// The bottom of the model: x = dropout(table[token] + positions[position]).
#pragma once

#include <span>

#include "trainer/model/layer.h"

namespace megalith {

class Embedding {
 public:
  // Declares two units, the token table and the position table, which its calls are given in this order.
  Embedding(Declarations& model, int64_t vocabulary, int64_t context, int64_t width);

  const std::vector<size_t>& units() const { return units_; }
  // The table is in the first unit: (vocabulary, C), rows split and padded.
  Param table() const { return table_; }

  // x (R, C) written; tokens (N) i32, sequences of T.
  void forward(const Context& c, std::span<const UnitTensors> w, Tensor tokens, Tensor x) const;

  // The same of runs of tokens that stand anywhere: so many from that position on, one run after the other.
  struct Run {
    int64_t position, count;
  };
  void forward(const Context& c, std::span<const UnitTensors> w, Tensor tokens, std::span<const Run> runs,
               Tensor x) const;

  // dw accumulates; dx (R, C) is used up.
  void backward(const Context& c, std::span<const UnitTensors> dw, Tensor tokens, Tensor dx) const;

 private:
  std::vector<size_t> units_;
  Param table_, positions_;
  int32_t site_;
};

}  // namespace megalith
