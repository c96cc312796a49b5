// A model: its layers, from the embedding to the head, and the list of parameters that they declare.
#pragma once

#include <vector>

#include "configs/config.h"
#include "trainer/model/block.h"
#include "trainer/model/embedding.h"
#include "trainer/model/head.h"

namespace megalith {

class Model {
 public:
  // config.vocab is the size of the vocabulary.
  explicit Model(const ModelConfig& config);

  // Units are in the order of the layers: the embedding's, one for each block, the head's own.
  const std::vector<UnitSpec>& units() const { return declared_.units; }
  size_t first_block_unit() const { return embedding_.units().size(); }
  size_t end_block_unit() const { return first_block_unit() + blocks_.size(); }
  const UnitSpec& block_unit(int64_t layer) const {
    return units().at(first_block_unit() + static_cast<size_t>(layer));
  }
  // Returns the number of dropout masks, over all layers.
  int64_t dropout_sites() const { return declared_.num_sites(); }
  // Returns the parameter whose rows are the vocabulary; an untied head's matrix is split in the same way.
  const ParamSpec& token_embedding() const;

  const Embedding& embedding() const { return embedding_; }
  const Block& block(int64_t layer) const { return blocks_.at(static_cast<size_t>(layer)); }
  const Head& head() const { return head_; }

 private:
  Declarations declared_;
  Embedding embedding_;
  std::vector<Block> blocks_;
  Head head_;
};

}  // namespace megalith
