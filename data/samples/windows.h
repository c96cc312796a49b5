// Visits every target of one or several streams once, for evaluation with a limited context: consecutive windows of T
// tokens, and a shorter one at the end of each stream. The windows of a masked stream are its sequences of examples,
// packed (packs.h), and its targets are those that count.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/samples/packs.h"
#include "data/samples/token_stream.h"

namespace megalith {

class Windows {
 public:
  // Errors: a stream of fewer than two tokens, which has no target; those of Packs.
  Windows(std::vector<TokenStream> streams, int64_t length);

  const std::vector<TokenStream>& streams() const { return streams_; }
  bool is_masked() const;  // true if any stream is
  int64_t length() const { return length_; }
  int64_t size() const { return ends_.back(); }
  int64_t targets(int64_t windows) const;  // targets in the first `windows` windows

  std::vector<int64_t> document_begins(int64_t i) const;  // as in Loader

  // Writes window i's tokens and targets, T each. After the end of a shorter window, tokens are 0 and targets -1.
  void fill(int64_t i, std::span<int32_t> inputs, std::span<int32_t> targets) const;

 private:
  struct Window {
    const TokenStream& tokens;
    int64_t begin, end;  // the window's inputs
  };
  size_t stream_of(int64_t i) const;
  Window at(int64_t i) const;
  int64_t begin_of(size_t stream) const { return stream == 0 ? 0 : ends_[stream - 1]; }

  std::vector<TokenStream> streams_;
  std::vector<std::shared_ptr<const Packs>> packs_;  // of each stream; null unless it is masked
  int64_t length_;
  std::vector<int64_t> ends_;  // the end of each stream, in windows
};

}  // namespace megalith
