// A prepare that ended too early goes on, and not with what has changed since.
#include <cerrno>
#include <nlohmann/json.hpp>

#include "data/corpus/prepare.h"
#include "kernels/system/file_calls.h"
#include "kernels/system/folder_lock.h"
#include "kernels/system/json.h"
#include "tests/altered_json.h"
#include "tests/data/compressed.h"
#include "tests/data/corpora.h"
#include "tests/data/scratch.h"
#include "tests/long_tests.h"
#include "tests/simulated_disk.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;
using test::as_lines;
using test::as_text;
using test::files_below;
using test::gzipped;
using test::numbered;
using test::options_for;
using test::Scratch;
using test::Texts;
using test::valid_text;

// Whichever call to the system fails, a restart makes the same files as a prepare that never failed.
class Restart : public testing::TestWithParam<bool> {
 protected:
  Restart() {
    const bool many = GetParam();
    Texts documents = numbered(many ? 150 : 4, 0);
    documents[1] += valid_text(9000, 1);
    documents[2] += "\xff";
    documents[3] += std::string(2000, 'z') + "\xff" + std::string(500, 'z');
    texts_ = {scratch_.write("a.txt", as_text(documents)),
              scratch_.write("b.jsonl.gz", gzipped(as_lines(numbered(many ? 100 : 3, 500)) + "{}\n")),
              scratch_.write("c.txt", valid_text(7000, 2))};
  }
  PrepareOptions options(const std::string& out) const {
    PrepareOptions options = options_for(texts_, scratch_.path(out), 0.1);
    options.shard_tokens = 5000;
    options.skip_bad = 3;
    options.window_bytes = 1500;
    options.note_bytes = 1;
    options.note_seconds = 0;
    return options;
  }

  Scratch scratch_;
  Texts texts_;
};

TEST_P(Restart, GoesOnAfterAFailureAnywhere) {
  EXPECT_EQ(prepare(options("whole")).rule,
            GetParam() ? ValidationSplit::Rule::documents : ValidationSplit::Rule::ends);
  const auto whole = files_below(scratch_.path("whole"));
  ASSERT_TRUE(whole.contains("train-00001.bin"));
  const int64_t step = taken("Restart.GoesOnAfterAFailureAnywhere");
  int num_continued = 0;
  std::string refused = "?";
  for (int64_t n = 0; !refused.empty(); n += step) {
    SCOPED_TRACE(n);
    refused.clear();
    {
      const FileHook hook([&, calls = 0](const FileEvent& event) mutable -> FileFate {
        if (event.call == FileCall::open || event.call == FileCall::remove || event.call == FileCall::lock ||
            calls++ < n)
          return {};
        refused = event.path;  // and everything after it, as after a kill
        return {ENOSPC, event.bytes / 2};
      });
      try {
        prepare(options("out"));
      } catch (const Error&) {
        EXPECT_FALSE(fs::exists(scratch_.path("out/train-00000.bin")) &&
                     !fs::exists(scratch_.path("out/prepare.partial")));
      }
    }
    if (!refused.empty()) {
      const PrepareReport report = prepare(options("out"));
      num_continued += report.continued;
      EXPECT_EQ(report.bad_documents, 3);
    }
    EXPECT_TRUE(files_below(scratch_.path("out")) == whole);
    fs::remove_all(scratch_.path("out"));
  }
  EXPECT_GT(num_continued, 2);
}

TEST_P(Restart, IsRefusedWhenSomethingChanged) {
  PrepareOptions bad = options("out");
  bad.skip_bad = 2;
  EXPECT_ERROR(prepare(bad), "b.jsonl.gz, line ", "bad document 3");
  ASSERT_TRUE(fs::exists(scratch_.path("out/prepare.partial/position.json"))) << "what a restart can use";
  const auto kept = files_below(scratch_.path("out"));
  const auto refusal = [&](PrepareOptions changed, const char* what) {
    EXPECT_ERROR(prepare(changed), "out/prepare.partial", "holds the work of an unfinished prepare", what, "remove it");
  };
  PrepareOptions other = options("out");
  other.corpus.separator = "";
  refusal(other, "--separator is another");
  other = options("out");
  other.corpus.texts.pop_back();
  refusal(other, "c.txt is missing");
  other = options("out");
  other.corpus.texts.push_back(scratch_.write("d.txt", "d"));
  refusal(other, "d.txt is new");
  other = options("out");
  other.tokenizer = "train:300";
  refusal(other, "--tokenizer is another");
  EXPECT_TRUE(files_below(scratch_.path("out")) == kept);
  {
    const FolderLock another(scratch_.path("out/prepare.partial"), "");
    EXPECT_ERROR(prepare(options("out")), "is in use by");
  }
  EXPECT_TRUE(prepare(options("out")).continued) << "with a larger --skip-bad";
  prepare(options("whole"));
  EXPECT_TRUE(files_below(scratch_.path("out")) == files_below(scratch_.path("whole")));

  fs::remove_all(scratch_.path("out"));
  EXPECT_ERROR(prepare(bad), "bad document 3");
  fs::last_write_time(texts_[2], fs::last_write_time(texts_[2]) + std::chrono::seconds(1));
  refusal(options("out"), "c.txt changed");
}

INSTANTIATE_TEST_SUITE_P(Corpus, Restart, testing::Values(false, true),
                         [](const auto& suite) { return suite.param ? "whole_documents" : "ends"; });

TEST(Corpus, AChangedTokenizerIsNotGoneOnWith) {
  Scratch scratch;
  const std::string text = scratch.write("a.txt", valid_text(20'000, 1));
  PrepareOptions options = options_for({text}, scratch.path("first"), 0);
  options.tokenizer = "train:300";
  prepare(options);
  options = options_for({text, scratch.write("b.txt", "\xff")}, scratch.path("out"), 0);
  options.tokenizer = scratch.path("first/tokenizer");
  options.note_bytes = 1;
  options.note_seconds = 0;
  EXPECT_ERROR(prepare(options), "not UTF-8");
  const std::string merges = scratch.path("first/tokenizer/merges.txt"), before = read_file(merges);
  scratch.write("first/tokenizer/merges.txt", before.substr(0, before.rfind('\n', before.size() - 2) + 1));
  options.skip_bad = 1;
  EXPECT_ERROR(prepare(options), "the tokenizer", "changed since");
  scratch.write("first/tokenizer/merges.txt", before);
  EXPECT_TRUE(prepare(options).continued);
}

// Whatever its notes say, a prepare goes on or says which of them is damaged; and it moves nothing but what it makes.
class AlteredNotes : public testing::Test {
 protected:
  AlteredNotes() {
    std::ofstream(scratch_ / "a.txt") << valid_text(300, 1);
    std::ofstream(scratch_ / "b.txt") << "words and \xff";
  }
  PrepareOptions options(int64_t skip_bad) const {
    PrepareOptions options = options_for({scratch_ / "a.txt", scratch_ / "b.txt"}, scratch_ / "out", 0.1);
    options.skip_bad = skip_bad;
    options.window_bytes = 100;
    options.note_bytes = 1;
    options.note_seconds = 0;
    return options;
  }
  std::string note(const std::string& name) const { return "out/prepare.partial/" + name; }

  // prepare.partial as it was found, with each altered note in the place of the one that is there.
  void try_each(const std::string& name) const {
    fs::copy(scratch_ / "out", scratch_ / "kept", fs::copy_options::recursive);
    nlohmann::json good = parse_json(read_file(scratch_ / note(name)));
    int refused = 0;
    for (const nlohmann::json& other : test::altered(good)) {
      fs::remove_all(scratch_ / "out");
      fs::copy(scratch_ / "kept", scratch_ / "out", fs::copy_options::recursive);
      std::ofstream(scratch_ / note(name)) << json_text(other);
      const auto error = error_of([&] { prepare(options(2)); });
      refused += error.has_value();
      EXPECT_TRUE(!error || error->find("prepare.partial") != std::string::npos ||
                  error->find("out/") != std::string::npos)
          << *error << "\n"
          << other;
    }
    EXPECT_GT(refused, 50);
    fs::remove_all(scratch_ / "out");
    fs::rename(scratch_ / "kept", scratch_ / "out");
    EXPECT_TRUE(prepare(options(2)).continued);
  }
  void expect_refused(const std::string& name, const char* pointer, const nlohmann::json& value, const char* why) {
    const std::string before = read_file(scratch_ / note(name));
    nlohmann::json altered = parse_json(before);
    altered[nlohmann::json::json_pointer(pointer)] = value;
    std::ofstream(scratch_ / note(name)) << json_text(altered);
    EXPECT_ERROR(prepare(options(2)), name.c_str(), why, "remove the folder");
    std::ofstream(scratch_ / note(name)) << before;
  }

  const test::QuickFolder scratch_;
};

TEST_F(AlteredNotes, OfHowFarItIs) {
  EXPECT_ERROR(prepare(options(0)), "not UTF-8");
  expect_refused("position.json", "/train/1", "4", "not a whole number");
  expect_refused("position.json", "/train/1", -4, "-4 is not from 0");
  expect_refused("position.json", "/train/1", 1e300, "not a whole number");
  expect_refused("position.json", "/offset", int64_t{1} << 60, "is not from 0");
  expect_refused("position.json", "/document_begin", 1'000'000, "1000000 is not from 0 to");
  expect_refused("position.json", "/input", 5, "text 6 of 2");
  expect_refused("made_of.json", "/held_out/rule", 7, "7 is not from 0 to 2");
  expect_refused("made_of.json", "/of/texts", {{1}}, "number is not a list");
  try_each("position.json");
}

TEST_F(AlteredNotes, OfWhatItMakes) {
  EXPECT_ERROR(prepare(options(0)), "not UTF-8");
  try_each("made_of.json");
}

// Whatever stands there, nothing is overwritten, and what is wrong is said.
TEST_F(AlteredNotes, OfOneThatHasEnded) {
  prepare(options(2));
  const nlohmann::json good = parse_json(read_file(scratch_ / "out/prepared.json"));
  const std::string train = read_file(scratch_ / "out/train.bin");
  int refused = 0;
  for (const nlohmann::json& other : test::altered(good)) {
    std::ofstream(scratch_ / "out/prepared.json") << json_text(other);
    const auto error = error_of([&] { EXPECT_TRUE(prepare(options(2)).was_made); });
    refused += error.has_value();
    EXPECT_TRUE(!error || (error->find("/out") != std::string::npos && error->find("remove") != std::string::npos))
        << *error << "\n"
        << other;
  }
  EXPECT_GT(refused, 50);
  EXPECT_EQ(read_file(scratch_ / "out/train.bin"), train);
}

TEST_F(AlteredNotes, OfWhatItHasMade) {
  {
    const FileHook hook([&](const FileEvent& event) -> FileFate {
      if (event.call == FileCall::rename && event.to == scratch_ / "out/train.bin") return {EIO};
      return {};
    });
    EXPECT_ERROR(prepare(options(2)), "out/train.bin");
  }
  ASSERT_TRUE(fs::exists(scratch_ / note("publish.json")));
  std::ofstream(scratch_ / "mine") << "precious";
  expect_refused("publish.json", "/names/0", "../../mine", "names ../../mine, which prepare never writes");
  expect_refused("publish.json", "/report/vocab_size", 0, "0 is not from 1");
  expect_refused("publish.json", "/report/train/0", true, "boolean");
  try_each("publish.json");
  EXPECT_EQ(read_file(scratch_ / "mine"), "precious");
}

}  // namespace
}  // namespace megalith
