// The token files of one part of a corpus, NAME.bin or NAME-00000.bin, NAME-00001.bin, ..., with their indices: a shard
// ends with the document that brings it to shard_tokens or more. Writing can continue at a mark.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/samples/indexed_dataset_writer.h"

namespace megalith {

class TokenShards {
 public:
  struct Mark {
    int64_t shard = 0;                             // the shard being written, from 0
    IndexedDatasetWriter::Mark written;            // position in this shard
    int64_t documents = 0, tokens = 0, bytes = 0;  // sums over all shards, complete documents only
    int64_t open_bytes = 0;                        // bytes of the unfinished document after them

    bool operator==(const Mark&) const = default;
  };

  // shard_tokens 0: one file, NAME. The first document creates the first file. masked: each file has a .mask.
  TokenShards(const std::string& folder, const std::string& name, int64_t vocab_size, int64_t shard_tokens,
              const Mark& from, bool masked = false);

  // Adds to the current document, for this many bytes of text; `counts` as in IndexedDatasetWriter::add.
  void add(std::span<const int32_t> ids, int64_t bytes, std::span<const uint8_t> counts = {});
  void end_document();
  void drop_document();
  Mark sync();
  void finish();  // writes the indices; may be repeated

  const Mark& mark() const { return mark_; }
  // Returns the finished files, each index and mask before its tokens: a .bin without its .idx would be read as raw
  // tokens, and without its .mask all of its tokens would count.
  std::vector<std::string> files() const;

 private:
  std::string prefix_of(int64_t shard) const;
  int64_t num_shards() const;  // those that have documents
  IndexedDatasetWriter& writer();

  std::string folder_, name_;
  int64_t vocab_size_, shard_tokens_;
  Mark mark_;
  bool masked_;
  std::unique_ptr<IndexedDatasetWriter> writer_;
};

}  // namespace megalith
