#include "data/corpus/common_tokens.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>

#include "data/corpus/ordered_parallel.h"
#include "data/samples/indexed_dataset.h"
#include "kernels/system/files.h"

namespace megalith {

namespace {

constexpr int64_t bytes_counted_at_once = 1 << 20;

struct FilePart {
  const File* file;
  int64_t begin, bytes;
};

template <class T>
void count_part(const FilePart& part, std::vector<T>& tokens, std::vector<int64_t>& counts) {
  tokens.resize(static_cast<size_t>(part.bytes) / sizeof(T));
  part.file->read(part.begin, tokens.data(), part.bytes);
  for (const T token : tokens) counts[static_cast<size_t>(token)]++;
}

template <class T>
std::vector<int64_t> count_all(const std::vector<std::unique_ptr<File>>& files, size_t vocab_size, int threads) {
  std::vector<int64_t> all(vocab_size);
  std::vector<std::unique_ptr<std::vector<int64_t>>> of_threads;
  std::mutex adding;
  size_t file = 0;
  int64_t begin = 0;
  ordered_parallel<FilePart, int>(
      threads,
      [&](FilePart& part) {
        for (; file < files.size() && begin == files[file]->size(); file++) begin = 0;
        if (file == files.size()) return false;
        part = {files[file].get(), begin, std::min(bytes_counted_at_once, files[file]->size() - begin)};
        begin += part.bytes;
        return true;
      },
      [&]() -> std::function<int(FilePart &&)> {
        const std::lock_guard lock(adding);
        std::vector<int64_t>& mine = *of_threads.emplace_back(std::make_unique<std::vector<int64_t>>(vocab_size));
        return [&mine, tokens = std::vector<T>()](FilePart&& part) mutable {
          count_part(part, tokens, mine);
          return 0;
        };
      },
      [](int&&) {});
  for (const auto& of_thread : of_threads)
    std::transform(all.begin(), all.end(), of_thread->begin(), all.begin(), std::plus<>());
  return all;
}

}  // namespace

std::vector<int64_t> count_tokens(const std::vector<std::string>& bins, int32_t vocab_size, int threads) {
  std::vector<std::unique_ptr<File>> files;
  for (const std::string& bin : bins) files.push_back(std::make_unique<File>(bin, File::Use::read));
  if (indexed_dataset::element_for(vocab_size) == indexed_dataset::Element::uint16)
    return count_all<uint16_t>(files, static_cast<size_t>(vocab_size), threads);
  return count_all<int32_t>(files, static_cast<size_t>(vocab_size), threads);
}

std::vector<int32_t> most_common(const std::vector<int64_t>& counts, size_t most) {
  std::vector<int32_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t shown = std::min(most, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
                    [&](int32_t a, int32_t b) {
                      const int64_t of_a = counts[static_cast<size_t>(a)], of_b = counts[static_cast<size_t>(b)];
                      return of_a != of_b ? of_a > of_b : a < b;
                    });
  order.resize(shown);
  std::erase_if(order, [&](int32_t id) { return counts[static_cast<size_t>(id)] == 0; });
  return order;
}

}  // namespace megalith
