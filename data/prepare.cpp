#include "data/prepare.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <thread>

#include "data/indexed_dataset_writer.h"
#include "data/ordered_parallel.h"
#include "data/text_windows.h"
#include "data/tokenizer.h"
#include "data/tokenizer_spec.h"
#include "kernels/base/files.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

// OUT and, inside it, the folder where everything is made. The latter is also a lock: two runs never mix. Unless all is
// published, OUT is left as it was found.
class Workplace {
 public:
  Workplace(std::string out, std::vector<std::string> names)
      : out_(std::move(out)), partial_(out_ / "prepare.partial"), names_(std::move(names)) {
    refuse_existing();
    std::error_code absent;
    for (fs::path folder = out_; !folder.empty() && !exists(symlink_status(folder, absent));
         folder = folder.parent_path())
      made_.push_back(folder);
    try {
      make_folders(out_.string(), "give one that can be written");
      CHECK(make_folders(partial_.string(), "give one that can be written"),
            "{} exists: another prepare writes there, or one was killed; if none runs, remove it", partial_.string());
    } catch (const Error&) {
      clean_out();
      throw;
    }
  }

  ~Workplace() {
    if (num_published_ == names_.size()) return;
    try {
      for (size_t i = 0; i < num_published_; i++) remove_all((out_ / names_[i]).string());
      remove_all(partial_.string());
    } catch (const Error&) {  // there is an error under way already
    }
    clean_out();
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  std::string path(const std::string& name) const { return (partial_ / name).string(); }

  // Moves the names into OUT, in their order.
  void publish() {
    refuse_existing();
    for (const std::string& name : names_) {
      move_file(path(name), (out_ / name).string());
      num_published_++;
    }
    remove_all(partial_.string());
  }

 private:
  void refuse_existing() const {
    std::error_code absent;
    for (const std::string& name : names_)
      CHECK(!fs::exists(fs::symlink_status(out_ / name, absent)),
            "{} exists, and nothing is overwritten; remove it or write to another folder", (out_ / name).string());
  }
  void clean_out() const {
    for (const fs::path& folder : made_) discard(folder.string());  // unless others have put something there
  }

  fs::path out_, partial_;
  std::vector<std::string> names_;
  std::vector<fs::path> made_;  // OUT and what is above it, as far as it was not there
  size_t num_published_ = 0;
};

// Where a file's validation document begins, see prepare.h.
int64_t split_of(const File& file, double fraction) {
  constexpr int64_t longest_search = 64 << 10;
  const int64_t size = file.size();
  const auto wanted = static_cast<int64_t>(std::ceil(static_cast<double>(size) * fraction));
  const int64_t begin = std::max<int64_t>(size - wanted, std::min<int64_t>(size, 1));
  if (wanted == 0) return size;
  const int64_t first = std::max<int64_t>(begin - std::min(wanted, longest_search), 1);
  std::string before(static_cast<size_t>(begin - first + 1), '\0');  // the byte before each possible beginning
  file.read(first - 1, before.data(), static_cast<int64_t>(before.size()));
  const size_t line_end = before.rfind('\n');
  if (line_end != std::string::npos) return first + static_cast<int64_t>(line_end);

  std::string at(static_cast<size_t>(std::min<int64_t>(size - begin, 4)), '\0');
  file.read(begin, at.data(), static_cast<int64_t>(at.size()));
  size_t skip = 0;
  while (skip < at.size() && (static_cast<uint8_t>(at[skip]) & 0xc0) == 0x80) skip++;
  return skip < at.size() ? begin + static_cast<int64_t>(skip) : begin;
}

struct Encoding {
  const Tokenizer& tokenizer;
  int threads;
  int64_t window_bytes;
  std::function<void(int64_t bytes)> advance;
};

PrepareReport::Part encode(const std::vector<TextRange>& ranges, const std::string& prefix, const Encoding& how) {
  struct Encoded {
    std::vector<int32_t> ids;
    int64_t bytes;
  };
  TextWindows windows(ranges, how.window_bytes, [&](std::string_view text) { return how.tokenizer.last_cut(text); });
  IndexedDatasetWriter writer(prefix, how.tokenizer.vocab_size());
  PrepareReport::Part part;
  const int32_t end_of_text = how.tokenizer.end_of_text();
  ordered_parallel<TextWindow, Encoded>(
      how.threads, [&](TextWindow& window) { return windows.next(window); },
      [&]() -> std::function<Encoded(TextWindow &&)> {
        const std::shared_ptr<Encoder> encoder = how.tokenizer.encoder();
        return [encoder, end_of_text](TextWindow&& window) {
          Encoded encoded{{}, static_cast<int64_t>(window.text.size())};
          encoder->encode(window.text, encoded.ids);
          if (window.ends_range) encoded.ids.push_back(end_of_text);
          return encoded;
        };
      },
      [&](Encoded&& encoded) {
        writer.add(encoded.ids);
        if (encoded.ids.back() == end_of_text) writer.end_document();
        part.bytes += encoded.bytes;
        how.advance(encoded.bytes);
      });
  writer.finish();
  part.documents = writer.num_documents();
  part.tokens = writer.num_tokens();
  return part;
}

int64_t total_of(const std::vector<TextRange>& ranges) {
  int64_t total = 0;
  for (const TextRange& range : ranges) total += range.size();
  return total;
}

}  // namespace

PrepareReport prepare(const PrepareOptions& options, const PrepareProgress& progress) {
  CHECK(!options.text_files.empty(), "no text to prepare; name at least one file");
  CHECK(!options.out.empty(), "no folder to write to; name one");
  CHECK(options.validation_fraction >= 0 && options.validation_fraction < 1,
        "a validation fraction of {}; it must be at least 0 and below 1", options.validation_fraction);
  CHECK(options.threads >= 0, "{} threads; give at least 1, or 0 for one a core", options.threads);
  CHECK(options.window_bytes >= 1, "windows of {} bytes; give at least 1", options.window_bytes);
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));

  std::vector<std::unique_ptr<File>> files;
  std::vector<TextRange> train, validation;
  for (const std::string& path : options.text_files) {
    const File& file = *files.emplace_back(std::make_unique<File>(path, File::Use::read));
    CHECK(file.size() > 0, "the text {} is empty (0 bytes); leave it out", path);
    const int64_t split = split_of(file, options.validation_fraction);
    train.push_back({&file, 0, split});
    if (split < file.size()) validation.push_back({&file, split, file.size()});
  }
  CHECK(options.validation_fraction == 0 || !validation.empty(),
        "the text has one byte a file: too little for a validation set; give more text, or a validation fraction of 0");
  const int32_t vocab_to_learn = vocab_to_train(options.tokenizer);
  std::unique_ptr<Tokenizer> tokenizer;
  if (options.tokenizer == "bytes") {
    tokenizer = make_byte_tokenizer();
  } else if (vocab_to_learn == 0) {
    std::error_code absent;
    CHECK(fs::is_directory(options.tokenizer, absent),
          "the tokenizer {} is not a folder; give \"bytes\", \"train:VOCAB\" or a folder that holds vocab.json and "
          "merges.txt",
          options.tokenizer);
    tokenizer = load_tokenizer(options.tokenizer);
  }

  std::vector<std::string> names{"tokenizer", "train.idx", "train.bin"};
  if (!validation.empty()) names.insert(names.end(), {"validation.idx", "validation.bin"});
  Workplace work(options.out, names);
  const auto tell = [&](std::string_view stage, int64_t done, int64_t total) {
    if (progress) progress(stage, done, total);
  };
  if (!tokenizer)
    tokenizer = train_tokenizer(train, vocab_to_learn, threads, {},
                                [&](int64_t done, int64_t total) { tell("training the tokenizer", done, total); });
  make_folders(work.path("tokenizer"), "give one that can be written");
  tokenizer->save(work.path("tokenizer"));

  int64_t done = 0;
  const int64_t total = total_of(train) + total_of(validation);
  const Encoding how{*tokenizer, threads, options.window_bytes,
                     [&](int64_t bytes) { tell("encoding", done += bytes, total); }};
  PrepareReport report;
  report.train = encode(train, work.path("train"), how);
  if (!validation.empty()) report.validation = encode(validation, work.path("validation"), how);
  report.vocab_size = tokenizer->vocab_size();
  report.bytes_per_token = indexed_dataset::bytes_of(indexed_dataset::element_for(report.vocab_size));
  work.publish();
  return report;
}

}  // namespace megalith
