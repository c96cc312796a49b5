// The formats of TokenStream. Each has a function and a file, which maps files, checks sizes and refuses inconsistent
// ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "data/samples/token_stream.h"
#include "kernels/system/files.h"
#include "kernels/system/mapped_file.h"

namespace megalith {

std::unique_ptr<TokenSource> open_megatron(const std::string& bin_path, const std::string& idx_path,
                                           int64_t& documents);
std::unique_ptr<TokenSource> open_llmc(const std::string& path);
std::unique_ptr<TokenSource> open_npy(const std::string& path);
std::unique_ptr<TokenSource> open_raw(const std::string& path);

bool has_llmc_header(const std::string& path);
bool has_npy_magic(const std::string& path);
bool is_megatron_index(const std::string& path);

// The common part: little-endian tokens of one width, packed, from byte `offset` to the end of a file.
template <class T>
class PackedTokens final : public TokenSource {
 public:
  PackedTokens(std::unique_ptr<MappedFile> file, size_t offset)
      : file_(std::move(file)),
        data_(file_->bytes().data() + offset),
        size_(static_cast<int64_t>((file_->bytes().size() - offset) / sizeof(T))) {}

  int64_t size() const override { return size_; }
  int32_t max_possible_token() const override {
    return static_cast<int32_t>(std::min<uint64_t>(std::numeric_limits<T>::max(), largest_token));
  }

  void read(int64_t begin, std::span<int32_t> out) const override {
    const std::byte* from = data_ + static_cast<size_t>(begin) * sizeof(T);
    file_->reading([=] {
      for (size_t i = 0; i < out.size(); i++) out[i] = static_cast<int32_t>(load(from + i * sizeof(T)));
    });
  }

  int32_t max_token(int64_t begin, int64_t end) const override {
    const std::byte* from = data_ + static_cast<size_t>(begin) * sizeof(T);
    const auto count = static_cast<size_t>(end - begin);
    T largest = 0, smallest = std::numeric_limits<T>::max();
    file_->reading([&] {
      T most = 0, least = smallest;
      for (size_t i = 0; i < count; i++) {
        const T token = load(from + i * sizeof(T));
        most = std::max(most, token);
        least = std::min(least, token);
      }
      largest = most;
      smallest = least;
    });
    if constexpr (std::numeric_limits<T>::is_signed)
      CHECK(smallest >= 0, "{} has token {}, but ids are never negative; prepare the file again", file_->path(),
            smallest);
    CHECK(static_cast<uint64_t>(largest) <= largest_token,
          "{} has token {}, but ids go up to {}; prepare the file again", file_->path(), largest, largest_token);
    return static_cast<int32_t>(largest);
  }

 private:
  static constexpr uint64_t largest_token = std::numeric_limits<int32_t>::max();

  static T load(const std::byte* p) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
  }

  std::unique_ptr<MappedFile> file_;
  const std::byte* data_;
  int64_t size_;
};

}  // namespace megalith
