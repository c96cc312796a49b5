#include "data/samples/token_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace megalith {

namespace {

constexpr int64_t whole_document = std::numeric_limits<int32_t>::max();

}  // namespace

TokenShards::TokenShards(const std::string& folder, const std::string& name, int64_t vocab_size, int64_t shard_tokens,
                         const Mark& from, bool masked)
    : folder_(folder), name_(name), vocab_size_(vocab_size), shard_tokens_(shard_tokens), mark_(from), masked_(masked) {
  CHECK(shard_tokens > 0 || from.shard == 0, "{}/{} is one file, to be written from its shard {} on", folder, name,
        from.shard);
  if (!(from == Mark())) writer();
}

std::string TokenShards::prefix_of(int64_t shard) const {
  return shard_tokens_ == 0 ? name_ : fmt::format("{}-{:05}", name_, shard);
}

IndexedDatasetWriter& TokenShards::writer() {
  if (!writer_)
    writer_ = std::make_unique<IndexedDatasetWriter>(folder_ + "/" + prefix_of(mark_.shard), vocab_size_,
                                                     whole_document, mark_.written, masked_);
  return *writer_;
}

void TokenShards::add(std::span<const int32_t> ids, int64_t bytes, std::span<const uint8_t> counts) {
  if (shard_tokens_ > 0 && mark_.written.tokens >= shard_tokens_) {
    sync();
    writer_.reset();
    mark_.shard++;
    mark_.written = {};
  }
  writer().add(ids, counts);
  mark_.written.open_tokens += static_cast<int64_t>(ids.size());
  mark_.open_bytes += bytes;
}

void TokenShards::end_document() {
  writer().end_document();
  IndexedDatasetWriter::Mark& written = mark_.written;
  mark_.documents++;
  mark_.tokens += written.open_tokens;
  mark_.bytes += std::exchange(mark_.open_bytes, 0);
  written = {written.tokens + written.open_tokens, written.documents + 1, 0};
}

void TokenShards::drop_document() {
  writer().drop_document();
  mark_.written.open_tokens = mark_.open_bytes = 0;
}

TokenShards::Mark TokenShards::sync() {
  if (writer_) writer_->sync();
  return mark_;
}

int64_t TokenShards::num_shards() const {
  if (mark_.documents == 0) return 0;
  return mark_.shard + (mark_.written.documents > 0 ? 1 : 0);  // every document of the last shard may have been dropped
}

void TokenShards::finish() {
  for (int64_t shard = 0; shard < std::min(num_shards(), mark_.shard); shard++) {
    const std::string prefix = folder_ + "/" + prefix_of(shard);
    IndexedDatasetWriter(prefix, vocab_size_, whole_document, IndexedDatasetWriter::mark_of(prefix), masked_).finish();
  }
  if (num_shards() > mark_.shard) writer().finish();
}

std::vector<std::string> TokenShards::files() const {
  std::vector<std::string> names;
  for (int64_t shard = 0; shard < num_shards(); shard++)
    for (const char* ending : {".idx", ".mask", ".bin"})
      if (masked_ || ending != std::string_view(".mask")) names.push_back(prefix_of(shard) + ending);
  return names;
}

}  // namespace megalith
