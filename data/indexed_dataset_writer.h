// Writes the .bin/.idx pair of indexed_dataset.h, token by token, in the memory of one call.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "data/indexed_dataset.h"
#include "kernels/base/files.h"

namespace megalith {

class IndexedDatasetWriter {
 public:
  // Creates PREFIX.bin. A document of more than longest_sequence tokens becomes several sequences.
  IndexedDatasetWriter(const std::string& prefix, int64_t vocab_size,
                       int64_t longest_sequence = std::numeric_limits<int32_t>::max());

  void add(std::span<const int32_t> ids);  // to the current document; ids are below vocab_size
  void end_document();
  void finish();  // once: writes PREFIX.idx, syncs both

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return static_cast<int64_t>(bounds_.size()) - 1; }

 private:
  std::string prefix_;
  indexed_dataset::Element element_;
  int64_t longest_sequence_;
  NewFile bin_;
  std::vector<uint16_t> narrow_;  // scratch
  std::vector<int32_t> lengths_;
  std::vector<int64_t> bounds_{0};
  int64_t document_tokens_ = 0, num_tokens_ = 0;
};

}  // namespace megalith
