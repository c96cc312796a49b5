#include "data/corpus/prepare.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "data/corpus/corpus.h"
#include "data/corpus/ordered_parallel.h"
#include "data/corpus/tokenizer_spec.h"
#include "data/samples/token_stream.h"
#include "data/tokenizers/special_text.h"
#include "data/tokenizers/tokenizer.h"
#include "kernels/system/file_calls.h"
#include "tests/data/scratch.h"
#include "tests/long_tests.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;
using test::gpt2_folder;
using test::Scratch;
using test::valid_text;

std::vector<int32_t> tokens_in(const std::string& path) {
  const TokenStream stream = TokenStream::open(path);
  std::vector<int32_t> tokens(static_cast<size_t>(stream.size()));
  stream.read(0, tokens);
  return tokens;
}

std::vector<int32_t> encoded(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  ids.push_back(tokenizer.end_of_text());
  return ids;
}

PrepareOptions options_of(std::vector<std::string> texts, const std::string& tokenizer, const std::string& out,
                          double validation_fraction = 0.01) {
  PrepareOptions options;
  options.corpus.texts = std::move(texts);
  options.corpus.validation_fraction = validation_fraction;
  options.tokenizer = tokenizer;
  options.out = out;
  return options;
}

TEST(Prepare, ManySmallWindowsEqualOneWholeText) {
  SKIP_WITHOUT_GPT2();
  const auto tokenizer = load_tokenizer(gpt2_folder());
  const auto stride = static_cast<unsigned>(taken("Prepare.ManySmallWindowsEqualOneWholeText"));
  for (unsigned seed = 0; seed < 24; seed += stride) {
    Scratch scratch;
    const std::string text = valid_text(2000, seed);
    PrepareOptions options = options_of({scratch.write("text", text)}, gpt2_folder(), scratch.path("out"), 0);
    options.threads = 1 + static_cast<int>(seed % 4);
    options.window_bytes = 1 + 3 * seed;
    const PrepareReport report = prepare(options);
    const std::vector<int32_t> want = encoded(*tokenizer, text);
    ASSERT_EQ(tokens_in(scratch.path("out/train.bin")), want) << "seed " << seed;
    EXPECT_EQ(report.train.tokens, static_cast<int64_t>(want.size()));
    EXPECT_EQ(report.train.bytes, static_cast<int64_t>(text.size()));
    EXPECT_EQ(report.train.documents, 1);
    EXPECT_EQ(report.validation.documents, 0);
    EXPECT_FALSE(fs::exists(scratch.path("out/validation.bin")));
    EXPECT_FALSE(fs::exists(scratch.path("out/prepare.partial")));
  }
}

// Characters of Llama 2's kind: a blank is put before a text, <s> begins it, and bytes stand for what has no token.
std::string write_characters(const Scratch& scratch) {
  nlohmann::json file = nlohmann::json::parse(R"({"added_tokens": [{"id": 0, "special": true, "content": "<s>"},
      {"id": 1, "special": true, "content": "</s>"}], "pre_tokenizer": null, "decoder": null,
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [0]}}},
    "model": {"type": "BPE", "byte_fallback": true, "vocab": {"<s>": 0, "</s>": 1}, "merges": ["_ t", "_t h", "_ _"]}})");
  nlohmann::json& vocab = file["model"]["vocab"];
  for (int byte = 0; byte < 256; byte++) vocab[fmt::format("<0x{:02X}>", byte)] = vocab.size();
  for (const char* token : {"_", "t", "h", "_t", "_th", "__"}) vocab[token] = vocab.size();
  scratch.write("characters/tokenizer.json", file.dump());
  scratch.write("characters/tokenizer_config.json", R"({"eos_token": "</s>"})");
  return scratch.path("characters");
}

TEST(Prepare, DocumentsBeginAndEndAsTheTokenizerWantsInWindowsOfAnySize) {
  const Scratch scratch;
  const std::string folder = write_characters(scratch);
  const auto tokenizer = load_tokenizer(folder);
  std::string text;
  for (int i = 0; i < 40; i++) text += "the  th\xc3\xa9 t<s>\n";
  for (const double fraction : {0.0, 0.2}) {
    std::vector<int32_t> all, train, validation;
    for (const int64_t window : {int64_t{1} << 20, int64_t{100}, int64_t{7}}) {
      const std::string out = scratch.path(fmt::format("out{}-{}", fraction, window));
      PrepareOptions options = options_of({scratch.write("text", text)}, folder, out, fraction);
      options.window_bytes = window;
      const PrepareReport report = prepare(options);
      const std::vector<int32_t> found = tokens_in(out + "/train.bin");
      EXPECT_EQ(report.special_texts,
                (std::map<std::string, int64_t>{{"<s>", std::count(found.begin(), found.end(), 0) - 1}}));
      const std::vector<int32_t> ends = fraction > 0 ? tokens_in(out + "/validation.bin") : std::vector<int32_t>();
      if (train.empty()) {
        train = found;
        validation = ends;
      }
      EXPECT_EQ(found, train) << window;
      EXPECT_EQ(ends, validation) << window;
    }
    if (fraction == 0) {
      std::vector<int32_t> want{0};
      encode_with_specials(*tokenizer, text, want);
      want.push_back(1);
      EXPECT_EQ(train, want);
    } else {
      ASSERT_FALSE(validation.empty());
      EXPECT_EQ(validation.front(), 0) << "an end that is held out begins as a text";
      EXPECT_EQ(validation.back(), 1);
      EXPECT_EQ(std::count(validation.begin(), validation.end(), 1), 1);
    }
  }
}

TEST(Prepare, ValidationIsTheEndOfEachFile) {
  Scratch scratch;
  std::string lines;
  for (int i = 0; i < 100; i++) lines += fmt::format("line {:4}\n", i);  // 10 bytes each
  const std::string flat = std::string(95, 'x') + "\xe4\xb8\x96yz";      // the cut would fall into a character
  const PrepareReport report = prepare(
      options_of({scratch.write("lines", lines), scratch.write("flat", flat)}, "bytes", scratch.path("out"), 0.035));
  const auto tokenizer = load_tokenizer(scratch.path("out/tokenizer"));
  std::vector<int32_t> train = encoded(*tokenizer, lines.substr(0, 960));
  for (const int32_t id : encoded(*tokenizer, flat.substr(0, 98))) train.push_back(id);
  std::vector<int32_t> validation = encoded(*tokenizer, lines.substr(960));
  for (const int32_t id : encoded(*tokenizer, flat.substr(98))) validation.push_back(id);
  EXPECT_EQ(tokens_in(scratch.path("out/train.bin")), train);
  EXPECT_EQ(tokens_in(scratch.path("out/validation.bin")), validation);
  EXPECT_EQ(report.train.documents, 2);
  EXPECT_EQ(report.validation.documents, 2);
  EXPECT_EQ(report.validation.bytes, 42);
  EXPECT_EQ(report.vocab_size, 257);
  EXPECT_EQ(report.bytes_per_token, 2);
}

TEST(Prepare, TrainsATokenizerThatDoesNotDependOnThreads) {
  Scratch scratch;
  const std::string text = scratch.write("text", valid_text(100'000, 4));
  for (const int threads : {1, 3}) {
    PrepareOptions options = options_of({text}, "train:500", scratch.path(std::to_string(threads)));
    options.threads = threads;
    options.window_bytes = 1000 * threads;
    EXPECT_EQ(prepare(options).vocab_size, 500);
  }
  for (const char* name : {"tokenizer/vocab.json", "tokenizer/merges.txt", "train.bin", "train.idx", "validation.bin"})
    EXPECT_EQ(read_file(scratch.path(std::string("1/") + name)), read_file(scratch.path(std::string("3/") + name)))
        << name;

  // The folder it made is one to prepare with.
  prepare(options_of({text}, scratch.path("1/tokenizer"), scratch.path("again")));
  EXPECT_EQ(read_file(scratch.path("again/train.bin")), read_file(scratch.path("1/train.bin")));
}

TEST(Prepare, LargeTextsAreSampledForTraining) {
  Scratch scratch;
  CorpusOptions corpus_options;
  corpus_options.texts = {scratch.write("a", valid_text(30'000, 1)), scratch.write("b", valid_text(50'000, 2))};
  corpus_options.validation_fraction = 0;
  const Corpus corpus = open_corpus(corpus_options);
  const auto merges_with = [&](int64_t sample_bytes, int threads) {
    const auto tokenizer =
        train_tokenizer(corpus, 400, threads, {.sample_bytes = sample_bytes, .window_bytes = 1000}, [](int64_t) {});
    scratch.write("t/kept", "");
    tokenizer->save(scratch.path("t"));
    const std::string merges = read_file(scratch.path("t/merges.txt"));
    fs::remove_all(scratch.path("t"));
    return merges;
  };
  const std::string sampled = merges_with(20'000, 1);
  EXPECT_EQ(sampled, merges_with(20'000, 4));
  EXPECT_NE(sampled, merges_with(1 << 20, 1));
  EXPECT_EQ(merges_with(1 << 20, 3), merges_with(1 << 20, 1));
}

TEST(Prepare, ProgressReachesItsTotal) {
  Scratch scratch;
  int64_t last = 0, total = 0;
  PrepareOptions options = options_of({scratch.write("text", valid_text(2'000'000, 1))}, "bytes", scratch.path("out"));
  options.window_bytes = 100'000;
  int calls = 0;
  prepare(options, [&](std::string_view, int64_t done, int64_t of) {
    EXPECT_GT(done, last);
    last = done;
    total = of;
    calls++;
  });
  EXPECT_GT(calls, 4);
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, static_cast<int64_t>(fs::file_size(scratch.path("text"))));
}

TEST(Prepare, RefusesBadInputAndLeavesNothing) {
  Scratch scratch;
  const std::string text = scratch.write("text", "some text\n"), empty = scratch.write("empty", "");
  fs::create_directory(scratch.path("nothing"));
  const auto run = [&](std::vector<std::string> files, const std::string& tokenizer, double fraction = 0.01) {
    prepare(options_of(std::move(files), tokenizer, scratch.path("out"), fraction));
  };
  EXPECT_ERROR(run({}, "bytes"), "no text");
  EXPECT_ERROR(run({text, scratch.path("missing")}, "bytes"), "missing", "No such file");
  EXPECT_ERROR(run({text, empty}, "bytes"), "empty (0 bytes)");
  EXPECT_ERROR(run({scratch.path("nothing")}, "bytes"), "has no text", "name the files themselves");
  EXPECT_ERROR(run({text}, "bites"), "bites", "\"bytes\"");
  for (const char* spec : {"train:", "train:257", "train:x", "train:300x", "train:99999999999"})
    EXPECT_ERROR(run({text}, spec), spec, "train:4096");
  EXPECT_ERROR(run({text}, "train:400"), "tokens, not 400");
  EXPECT_ERROR(run({text}, "bytes", 1.0), "fraction of 1");
  EXPECT_ERROR(run({text}, "bytes", -0.1), "fraction of -0.1");
  EXPECT_ERROR(run({scratch.write("one", "x")}, "bytes"), "one byte a document");
  EXPECT_FALSE(fs::exists(scratch.path("out")));
}

TEST(Prepare, AFailureLeavesNoFolderOnTheWayThere) {
  Scratch scratch;
  const std::string text = scratch.write("text", "some text\n");
  for (const char* out : {"x", "x/y/z", "x/y/z/"})
    for (const char* kept : {"", "x/", "x/y/"}) {
      fs::create_directories(scratch.path(kept));
      const auto run = [&] { prepare(options_of({text}, "train:400", scratch.path(out))); };
      EXPECT_ERROR(run(), "tokens, not 400");
      int num_left = 0;
      for ([[maybe_unused]] const auto& left : fs::recursive_directory_iterator(scratch.path("."))) num_left++;
      EXPECT_EQ(num_left, 1 + static_cast<int>(std::string(kept).size() / 2)) << out << " with " << kept;
      fs::remove_all(scratch.path("x"));
    }
}

TEST(Prepare, AFolderThatCannotBeMadeLeavesNoneOfThoseAboveIt) {
  Scratch scratch;
  fs::create_symlink("nowhere", scratch.path("link"));
  const PrepareOptions options =
      options_of({scratch.write("text", "some text\n")}, "bytes", scratch.path("x/y/" + std::string(300, 'z')));
  EXPECT_ERROR(prepare(options), "cannot make the folder", "File name too long");
  EXPECT_FALSE(fs::exists(scratch.path("x")));
  PrepareOptions behind = options;
  behind.out = scratch.path("link");
  EXPECT_ERROR(prepare(behind), "cannot make the folder");
  EXPECT_TRUE(fs::is_symlink(scratch.path("link"))) << "which others made";
}

TEST(Prepare, OneThatHasEndedHasNothingToDo) {
  Scratch scratch;
  PrepareOptions options = options_of({scratch.write("text", "some text\n")}, "bytes", scratch.path("out"));
  const PrepareReport first = prepare(options);
  EXPECT_FALSE(first.was_made);
  const auto time = fs::last_write_time(scratch.path("out/train.bin"));
  options.threads = 1;
  const PrepareReport again = prepare(options);
  EXPECT_TRUE(again.was_made);
  EXPECT_EQ(again.train.tokens, first.train.tokens);
  EXPECT_EQ(again.most_common.size(), first.most_common.size());
  EXPECT_EQ(fs::last_write_time(scratch.path("out/train.bin")), time);
  scratch.write("text", "some other text\n");
  EXPECT_ERROR(prepare(options), "text changed since", "remove it or write to another folder");
  scratch.write("out/prepared.json", "{\"of\": 1}");
  EXPECT_ERROR(prepare(options), "prepared.json is damaged");
}

TEST(Prepare, NeverOverwrites) {
  Scratch scratch;
  PrepareOptions options = options_of({scratch.write("text", "some text\n")}, "bytes", scratch.path("out"));
  scratch.write("out/notes", "others may have files there");
  prepare(options);
  const std::string before = read_file(scratch.path("out/train.bin"));
  PrepareOptions another = options;
  another.corpus.validation_fraction = 0;
  EXPECT_ERROR(prepare(another), "out holds the output of an earlier prepare", "--validation is another", "remove it");
  fs::remove_all(scratch.path("out/tokenizer"));
  EXPECT_ERROR(prepare(options), "tokenizer is gone");
  fs::remove_all(scratch.path("out/prepared.json"));
  EXPECT_ERROR(prepare(options), "out/train.bin exists", "remove it");
  EXPECT_EQ(read_file(scratch.path("out/train.bin")), before);
  EXPECT_TRUE(fs::exists(scratch.path("out/notes")));

  options.out = scratch.path("locked");
  scratch.write("locked/prepare.partial/x", "");
  EXPECT_ERROR(prepare(options), "prepare.partial exists", "if no prepare is running, remove it");
  EXPECT_TRUE(fs::exists(scratch.path("locked/prepare.partial/x")));
}

TEST(Prepare, UnwritableFolder) {
  Scratch scratch;
  const PrepareOptions options = options_of({scratch.write("text", "some text\n")}, "bytes", scratch.path("text/out"));
  EXPECT_ERROR(prepare(options), "text/out", "cannot make the folder");
}

// Some file systems keep the name of an open file, so that its folder cannot be removed.
TEST(Prepare, RemovesItsFolderOnceItsLockIsClosed) {
  Scratch scratch;
  const PrepareOptions options = options_of({scratch.write("text", "some text\n")}, "bytes", scratch.path("out"));
  const std::string partial = scratch.path("out/prepare.partial");
  const auto is_locked = [&] {
    const int lock = ::open((partial + "/lock").c_str(), O_RDWR);
    const bool locked = lock >= 0 && ::flock(lock, LOCK_EX | LOCK_NB) != 0;
    ::close(lock);
    return locked;
  };
  const FileHook hook([&](const FileEvent& event) {
    return FileFate{event.call == FileCall::remove && event.path == partial && is_locked() ? ENOTEMPTY : 0};
  });
  EXPECT_EQ(prepare(options).not_removed, "");
  EXPECT_FALSE(fs::exists(partial));
}

// All is made then, and the next prepare of the same has only this to do.
TEST(Prepare, IsDoneWhereItsFolderCannotBeRemoved) {
  Scratch scratch;
  const PrepareOptions options = options_of({scratch.write("text", "some text\n")}, "bytes", scratch.path("out"));
  const std::string partial = scratch.path("out/prepare.partial");
  {
    const FileHook hook([&](const FileEvent& event) {
      return FileFate{event.call == FileCall::remove && event.path == partial ? EBUSY : 0};
    });
    EXPECT_NE(prepare(options).not_removed.find("cannot remove " + partial), std::string::npos);
  }
  EXPECT_TRUE(fs::exists(scratch.path("out/train.bin")));
  EXPECT_EQ(prepare(options).not_removed, "");
  EXPECT_FALSE(fs::exists(partial));
}

// Whichever call to the system it is that finds the disk full, and after whatever part of a write.
TEST(Prepare, AFullDiskIsAnErrorAndLeavesNothing) {
  Scratch scratch;
  const std::string text = scratch.write("text", std::string(10'000, 'x'));
  const PrepareOptions options = options_of({text}, "bytes", scratch.path("out"), 0);
  std::string refused;
  for (int n = 0; n == 0 || !refused.empty(); n++) {
    SCOPED_TRACE(n);
    refused.clear();
    const FileHook hook([&, calls = 0](const FileEvent& event) mutable -> FileFate {
      if (event.call == FileCall::open || event.call == FileCall::remove || event.call == FileCall::lock ||
          calls++ != n)
        return {};
      refused = event.path;
      return {ENOSPC, event.bytes / 2};
    });
    try {
      prepare(options);
      EXPECT_EQ(refused, "");
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(refused), std::string::npos) << message;
      EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
      EXPECT_FALSE(fs::exists(scratch.path("out")));
    }
  }
  EXPECT_EQ(tokens_in(scratch.path("out/train.bin")).size(), 10'001u);
}

TEST(OrderedParallel, KeepsOrderAndThrowsTheFirstError) {
  for (const int threads : {1, 2, 7}) {
    int next = 0;
    std::vector<int> results;
    const auto run = [&](int bad) {
      next = 0;
      results.clear();
      ordered_parallel<int, int>(
          threads, [&](int& item) { return (item = next++) < 1000; },
          [bad]() -> std::function<int(int&&)> {
            return [bad](int&& item) {
              CHECK(item != bad, "item {} is bad", item);
              if (item % 13 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
              return item;
            };
          },
          [&](int&& result) { results.push_back(result); });
    };
    run(-1);
    ASSERT_EQ(results.size(), 1000u);
    for (int i = 0; i < 1000; i++) ASSERT_EQ(results[static_cast<size_t>(i)], i);
    EXPECT_ERROR(run(500), "item 500 is bad");
    for (size_t i = 0; i < results.size(); i++) ASSERT_EQ(results[i], static_cast<int>(i));
    EXPECT_LE(results.size(), 500u);
  }
}

}  // namespace
}  // namespace megalith
