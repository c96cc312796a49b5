#include "data/indexed_dataset_writer.h"

#include <algorithm>

namespace megalith {

namespace format = indexed_dataset;

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, int64_t vocab_size, int64_t longest_sequence)
    : prefix_(prefix),
      element_(format::element_for(vocab_size)),
      longest_sequence_(longest_sequence),
      bin_(prefix + ".bin") {}

void IndexedDatasetWriter::add(std::span<const int32_t> ids) {
  document_tokens_ += static_cast<int64_t>(ids.size());
  num_tokens_ += static_cast<int64_t>(ids.size());
  if (element_ == format::Element::int32) return bin_.append(ids);
  narrow_.assign(ids.begin(), ids.end());
  bin_.append(std::span<const uint16_t>(narrow_));
}

void IndexedDatasetWriter::end_document() {
  for (int64_t left = document_tokens_; left > 0; left -= longest_sequence_)
    lengths_.push_back(static_cast<int32_t>(std::min(left, longest_sequence_)));
  bounds_.push_back(static_cast<int64_t>(lengths_.size()));
  document_tokens_ = 0;
}

void IndexedDatasetWriter::finish() {
  bin_.publish();
  std::vector<int64_t> pointers;
  int64_t pointer = 0;
  for (const int32_t length : lengths_) {
    pointers.push_back(pointer);
    pointer += int64_t{length} * format::bytes_of(element_);
  }
  const uint64_t num_sequences = lengths_.size(), num_bounds = bounds_.size();
  NewFile idx(prefix_ + ".idx");
  const auto append = [&]<class T>(const T& value) { idx.append(std::span<const T>(&value, 1)); };
  append(format::magic);
  append(format::version);
  append(element_);
  append(num_sequences);
  append(num_bounds);
  idx.append(std::span<const int32_t>(lengths_));
  idx.append(std::span<const int64_t>(pointers));
  idx.append(std::span<const int64_t>(bounds_));
  idx.publish();
}

}  // namespace megalith
