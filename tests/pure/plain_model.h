// The plain twin of the whole model, GPT-2 or what [model] makes of it, and its loss in double precision, in the
// plainest loops that are right. Its gradients are differences of its loss. When the trainer disagrees, this is read
// first.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/elementwise/dropout.h"

namespace megalith {

struct PlainModel {
  ModelConfig model;
  std::map<std::string, std::vector<double>> weights;  // by name, in the layout of the spec

  using Row = std::vector<double>;

  // Logits of every position of one sequence. `dropout` has the sequence's first global row; the site is set within.
  std::vector<Row> logits(const std::vector<int32_t>& tokens, const Dropout& dropout) const;

  // Mean over the targets of all sequences; sequence i is tokens[i][0..T], inputs and the targets shifted by one.
  double loss(const std::vector<std::vector<int32_t>>& sequences, const Dropout& dropout) const;
};

}  // namespace megalith
