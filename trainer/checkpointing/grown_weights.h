// The weights of a base in a model with more tokens: rows are added to the embedding and to an untied head.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoints/tensor_source.h"

namespace megalith {

// Serves the tensors of `base`, with embedding and head in `rows` rows. Each element of an added row is drawn from a
// normal distribution with the mean and standard deviation of its column over the rows of the base, by (seed, row,
// column), so that it is the same in every layout. For one thread.
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
  std::map<std::string, Columns> columns_;  // statistics of the tensors whose added rows were read
};

}  // namespace megalith
