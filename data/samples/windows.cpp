#include "data/samples/windows.h"

#include <algorithm>

#include "kernels/system/check.h"
#include "kernels/system/counted.h"

namespace megalith {

Windows::Windows(std::vector<TokenStream> streams, int64_t length) : streams_(std::move(streams)), length_(length) {
  CHECK(length >= 1, "windows of {} tokens; they hold at least 1", length);
  for (const TokenStream& stream : streams_) {
    CHECK(stream.size() > 1, "{} has {}, but a target needs a token before it; give more text", stream.path(),
          counted(stream.size(), "token"));
    packs_.push_back(stream.is_masked() ? std::make_shared<const Packs>(stream, length, true) : nullptr);
    const int64_t windows = packs_.back() ? packs_.back()->size() : (stream.size() - 1 + length - 1) / length;
    ends_.push_back(windows + (ends_.empty() ? 0 : ends_.back()));
  }
}

int64_t Windows::targets(int64_t windows) const {
  int64_t sum = 0;
  for (size_t i = 0; i < streams_.size() && windows > begin_of(i); i++) {
    const int64_t of_it = std::min(windows, ends_[i]) - begin_of(i);
    if (!packs_[i]) sum += std::min(of_it * length_, streams_[i].size() - 1);
    for (int64_t w = 0; packs_[i] && w < of_it; w++) sum += packs_[i]->counted(w);
  }
  return sum;
}

bool Windows::is_masked() const {
  return std::ranges::any_of(packs_, [](const auto& packs) { return packs != nullptr; });
}

size_t Windows::stream_of(int64_t i) const {
  const auto stream = static_cast<size_t>(std::ranges::upper_bound(ends_, i) - ends_.begin());
  CHECK(i >= 0 && stream < streams_.size(), "window {} of {}", i, size());
  return stream;
}

Windows::Window Windows::at(int64_t i) const {
  const size_t stream = stream_of(i);
  const TokenStream& tokens = streams_[stream];
  const int64_t begin = (i - begin_of(stream)) * length_;
  return {tokens, begin, std::min(begin + length_, tokens.size() - 1)};
}

std::vector<int64_t> Windows::document_begins(int64_t i) const {
  if (const size_t stream = stream_of(i); packs_[stream]) return packs_[stream]->begins(i - begin_of(stream));
  const Window window = at(i);
  return window.tokens.document_begins(window.begin, window.end);
}

void Windows::fill(int64_t i, std::span<int32_t> inputs, std::span<int32_t> targets) const {
  if (const size_t stream = stream_of(i); packs_[stream])
    return packs_[stream]->fill(i - begin_of(stream), inputs, targets);
  const Window window = at(i);
  std::vector<int32_t> read(static_cast<size_t>(window.end - window.begin) + 1);
  window.tokens.read(window.begin, read);
  std::ranges::fill(inputs, 0);
  std::ranges::fill(targets, -1);
  std::copy(read.begin(), read.end() - 1, inputs.begin());
  std::copy(read.begin() + 1, read.end(), targets.begin());
}

}  // namespace megalith
