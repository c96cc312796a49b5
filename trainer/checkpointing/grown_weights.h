// The weights of a base in a model with more tokens: rows are added to the token table and, where it has a matrix of
// its own, to the head.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoints/tensor_source.h"

namespace megalith {

// Serves the tensors of `base` with the table and the head in `rows` rows. Each element of an added row is drawn from a
// normal distribution of the mean and the standard deviation of its column over the rows of the base, by (seed, row,
// column), so that it is the same in every layout. Belongs to one thread.
class GrownSource : public TensorSource {
 public:
  GrownSource(std::unique_ptr<TensorSource> base, int64_t rows, uint64_t seed);

  std::vector<int64_t> shape(const std::string& name) const override;
  void read(const TensorShard& wanted, float* out) override;

 private:
  struct Columns {
    std::vector<double> mean, spread;
  };
  const Columns& columns_of(const std::string& name);

  std::unique_ptr<TensorSource> base_;
  int64_t rows_;
  uint64_t seed_;
  std::map<std::string, Columns> columns_;  // of tensors of which added rows were read
};

}  // namespace megalith
