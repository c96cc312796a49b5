// Which documents of a corpus are held out, and where the end of one begins that is.
#include "data/corpus/validation_split.h"

#include <set>

#include "data/corpus/prepare.h"
#include "tests/data/compressed.h"
#include "tests/data/corpora.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;
using test::as_lines;
using test::as_text;
using test::documents_in;
using test::files_below;
using test::numbered;
using test::options_for;
using test::Scratch;
using test::Texts;
using test::valid_text;
using test::zstd_compressed;

int64_t split_of(const std::string& document, double fraction) {
  return ValidationSplit(ValidationSplit::Rule::ends, fraction).split_of(document);
}

TEST(ValidationSplit, AnEndBeginsWithALineOrACharacter) {
  EXPECT_EQ(split_of("12345678", 0.25), 6);
  EXPECT_EQ(split_of("123456789", 0.25), 6) << "rounded up";
  EXPECT_EQ(split_of("1234\n678", 0.25), 5) << "a line that begins as much before";
  EXPECT_EQ(split_of("123\n5\n78", 0.25), 6) << "the nearest";
  EXPECT_EQ(split_of("12\n45678", 0.25), 6) << "too far";
  EXPECT_EQ(split_of("12345\xc3\xa9"
                     "8",
                     0.25),
            7)
      << "the next character";
  EXPECT_EQ(split_of("123456\xc3\xa9", 0.25), 6);
}

TEST(ValidationSplit, NothingWhereThatIsNoWholeCharacterOrAll) {
  EXPECT_EQ(split_of("caf\xc3\xa9", 0.1), 5);
  EXPECT_EQ(split_of("\xf0\x9f\x98\x80", 0.5), 4);
  EXPECT_EQ(split_of("1", 0.1), 1) << "a byte is left for training";
}

TEST(ValidationSplit, ALineIsLookedForIn64KiB) {
  const size_t end = 768 << 10;  // of 1 MiB, a quarter held out
  for (const size_t before : {64 << 10, (64 << 10) + 1}) {
    std::string document(1 << 20, 'x');
    document[end - before - 1] = '\n';
    EXPECT_EQ(split_of(document, 0.25), static_cast<int64_t>(before == 64 << 10 ? end - before : end));
  }
}

// Half of them in JSON lines, half as text.
TEST(Corpus, WholeDocumentsAreDrawnByTheirContent) {
  Scratch scratch;
  const Texts first = numbered(600, 0), second = numbered(600, 600);
  const std::string a = scratch.write("a.jsonl", as_lines(first)), b = scratch.write("b.txt", as_text(second));
  const auto validation = [&](const Texts& texts, const std::string& out, int64_t window) {
    PrepareOptions options = options_for(texts, scratch.path(out), 0.05);
    options.window_bytes = window;
    const PrepareReport report = prepare(options);
    EXPECT_EQ(report.rule, ValidationSplit::Rule::documents);
    EXPECT_EQ(report.train.documents + report.validation.documents, static_cast<int64_t>(600 * texts.size()));
    return documents_in(scratch.path(out + "/validation.bin"));
  };
  const Texts of_a = validation({a}, "a", 1 << 20), of_b = validation({b}, "b", 1 << 20);
  EXPECT_GT(of_a.size(), 15u);
  EXPECT_LT(of_a.size(), 50u);
  Texts both = of_a;
  both.insert(both.end(), of_b.begin(), of_b.end());
  EXPECT_EQ(validation({a, b}, "ab", 1 << 20), both) << "adding a file moved a document";
  EXPECT_EQ(validation({a, b}, "small windows", 10), both);
  EXPECT_EQ(validation({scratch.write("b.jsonl", as_lines(second))}, "lines", 100), of_b)
      << "the form of a document counts";
  Texts all = documents_in(scratch.path("a/train.bin"));
  all.insert(all.end(), of_a.begin(), of_a.end());
  EXPECT_EQ(std::set(all.begin(), all.end()), std::set(first.begin(), first.end()));
}

TEST(Corpus, LongDocumentsAreDrawnByTheirBeginning) {
  Scratch scratch;
  Texts documents = numbered(200, 0);
  for (size_t i = 0; i < documents.size(); i += 20) documents[i] += valid_text(200'000, static_cast<unsigned>(i));
  const std::string text = scratch.write("a.txt", as_text(documents));
  Texts before;
  for (const int64_t window : {1 << 20, 70'000, 10'000}) {
    PrepareOptions options = options_for({text}, scratch.path(std::to_string(window)), 0.3);
    options.window_bytes = window;
    prepare(options);
    const Texts validation = documents_in(options.out + "/validation.bin");
    if (!before.empty()) {
      EXPECT_TRUE(validation == before) << "windows of " << window;
    }
    before = validation;
  }
  EXPECT_GT(std::count_if(before.begin(), before.end(), [](const std::string& d) { return d.size() > 100'000; }), 0);
}

// Where documents are few, the end of each is held out, wherever windows are cut.
TEST(Corpus, EndsOfFewDocumentsDoNotDependOnWindows) {
  Scratch scratch;
  Texts documents;
  for (unsigned i = 0; i < 5; i++) documents.push_back(valid_text(100 + 40'000 * i, i));
  documents.push_back(std::string(30'000, 'x') + "\xe4\xb8\x96");
  documents.push_back("caf\xc3\xa9");  // whose end is no whole character
  const std::string text = as_text(documents);
  scratch.write("a.txt", text);
  scratch.write("a.txt.zst", zstd_compressed(text));
  std::map<std::string, std::string> before;
  for (const char* name : {"a.txt", "a.txt.zst"})
    for (const int64_t window : {1 << 20, 5000, 300}) {
      PrepareOptions options = options_for({scratch.path(name)}, scratch.path("out"), 0.1);
      options.window_bytes = window;
      const PrepareReport report = prepare(options);
      EXPECT_EQ(report.rule, ValidationSplit::Rule::ends);
      EXPECT_EQ(report.validation.documents, 6);
      auto files = files_below(options.out);
      EXPECT_EQ(files.erase("prepared.json"), 1u) << "which names the texts";
      if (!before.empty()) {
        EXPECT_TRUE(files == before) << name << " in windows of " << window;
      }
      before = files;
      fs::remove_all(options.out);
    }
}

}  // namespace
}  // namespace megalith
