// Writes the .bin/.idx pair of indexed_dataset.h, token by token, and the .mask of a masked dataset. Memory does not
// depend on the number of documents: their lengths go to PREFIX.lengths, from which the index is made; that file stays.
// A writer can continue at a mark of sync(), also in another process after a crash.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/samples/indexed_dataset.h"
#include "kernels/system/files.h"

namespace megalith {

class IndexedDatasetWriter {
 public:
  struct Mark {
    int64_t tokens = 0, documents = 0;  // complete ones
    int64_t open_tokens = 0;            // tokens of the unfinished document after them

    bool operator==(const Mark&) const = default;
  };

  // Returns the mark after all documents that an earlier writer completed.
  static Mark mark_of(const std::string& prefix);

  // Writes PREFIX.bin from the mark on. A document of more than longest_sequence tokens becomes several sequences.
  // `masked`: PREFIX.mask as well.
  IndexedDatasetWriter(const std::string& prefix, int64_t vocab_size,
                       int64_t longest_sequence = std::numeric_limits<int32_t>::max(), const Mark& from = {0, 0, 0},
                       bool masked = false);

  // Adds to the current document. All ids are below vocab_size. In a masked dataset `counts` has one entry for each id:
  // 1 if it counts, else 0.
  void add(std::span<const int32_t> ids, std::span<const uint8_t> counts = {});
  void end_document();
  void drop_document();  // discards the current document
  Mark sync();           // flushes to the disk
  void finish();         // writes PREFIX.idx and syncs both; may be repeated

  int64_t num_tokens() const { return mark_.tokens + mark_.open_tokens; }

 private:
  void flush();
  void write_index();
  int64_t num_sequences_of(int64_t tokens) const { return (tokens + longest_sequence_ - 1) / longest_sequence_; }

  std::string prefix_;
  indexed_dataset::Element element_;
  int64_t longest_sequence_;
  Mark mark_;
  std::unique_ptr<File> bin_, lengths_, mask_;  // mask_: null without a mask
  int64_t flushed_tokens_, flushed_documents_;
  bool names_are_synced_ = false;
  std::vector<uint16_t> narrow_;  // tokens not flushed yet; the element type decides which of the two is used
  std::vector<int32_t> wide_;
  std::vector<uint8_t> counts_;
  std::vector<int64_t> new_lengths_;
};

}  // namespace megalith
