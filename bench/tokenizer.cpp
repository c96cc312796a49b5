// bench_tokenizer FOLDER TEXT THREADS [REPEATS [IDS]]: measures how fast a tokenizer folder encodes a file, cut into a
// part for each thread. Prints the median of the repeats as one line of JSON. IDS receives the tokens, as int32.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <span>
#include <thread>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "kernels/system/files.h"
#include "kernels/system/mapped_file.h"

using namespace megalith;

namespace {

std::vector<std::string_view> parts_of(std::string_view text, size_t count, const Tokenizer& tokenizer) {
  std::vector<std::string_view> parts;
  for (size_t i = count; i > 1; i--) {
    const size_t cut = tokenizer.last_cut(text.substr(0, text.size() / i));
    parts.push_back(text.substr(0, cut));
    text.remove_prefix(cut);
  }
  parts.push_back(text);
  return parts;
}

// Every repeat starts with empty caches.
double seconds_of(const Tokenizer& tokenizer, const std::vector<std::string_view>& parts,
                  std::vector<std::vector<int32_t>>& ids) {
  ids.assign(parts.size(), {});
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < parts.size(); i++)
      threads.emplace_back([&, i] { tokenizer.encoder()->encode(parts[i], ids[i]); });
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return seconds.count();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    CHECK(argc >= 4, "usage: {} FOLDER TEXT THREADS [REPEATS]", argv[0]);
    const auto tokenizer = load_tokenizer(argv[1]);
    const MappedFile file(argv[2]);
    const std::string_view text = file.text();
    const int threads = std::atoi(argv[3]), repeats = argc > 4 ? std::atoi(argv[4]) : 5;
    CHECK(threads >= 1 && repeats >= 1, "{} threads and {} repeats; both must be at least 1", threads, repeats);

    const auto parts = parts_of(text, static_cast<size_t>(threads), *tokenizer);
    std::vector<std::vector<int32_t>> ids;
    std::vector<double> seconds;
    for (int i = 0; i < repeats; i++) seconds.push_back(seconds_of(*tokenizer, parts, ids));
    std::sort(seconds.begin(), seconds.end());
    size_t tokens = 0;
    for (const auto& part : ids) tokens += part.size();
    const double median = seconds[seconds.size() / 2], megabytes = static_cast<double>(text.size()) / 1e6;
    fmt::print("{{\"threads\": {}, \"megabytes\": {:.1f}, \"tokens\": {}, \"seconds\": {:.4f}, \"MB/s\": {:.1f}}}\n",
               threads, megabytes, tokens, median, megabytes / median);
    if (argc > 5) {
      NewFile out(argv[5]);
      for (const auto& part : ids) out.append(std::span<const int32_t>(part));
      out.publish();
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
