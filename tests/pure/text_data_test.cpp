// Data and tokenizer as a run finds them: what does not belong together is refused, with both sides and the remedy.
#include "trainer/step/text_data.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "data/corpus/prepare.h"
#include "data/samples/indexed_dataset_writer.h"
#include "data/samples/largest_ids.h"
#include "tests/message_of.h"
#include "trainer/step/data_overlap.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

Config of_vocabulary(int64_t vocab) {
  Config config;
  config.model.vocab = vocab;
  config.batch.sequence_length = 4;
  return config;
}

class TextDataTest : public testing::Test {
 protected:
  TextDataTest() : folder_(fs::temp_directory_path() / fmt::format("megalith-text-data-{}", ::getpid())) {
    fs::create_directories(folder_);
  }
  ~TextDataTest() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return path(name);
  }
  void prepared(const std::string& tokenizer) const {
    fs::remove_all(folder_ / "data");
    std::string text;
    for (int i = 0; i < 300; i++) text += fmt::format("line {} of {}\n", i, i * i);
    PrepareOptions options;
    options.corpus.texts = {write("text", text)};
    options.tokenizer = tokenizer;
    options.out = path("data");
    prepare(options);
  }
  Config open(const std::string& tokenizer, int64_t vocab = 0) const {
    Config config = of_vocabulary(vocab);
    config.data.train = path("data/train.bin");
    config.data.tokenizer = tokenizer;
    open_tokenizer(config);
    return config;
  }
  void expect_refusal(const std::function<void()>& f, const std::vector<std::string>& words) const {
    const std::string message = message_of(f);
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), std::string::npos) << "\"" << word << "\" is missing: " << message;
  }

  fs::path folder_;
};

TEST_F(TextDataTest, WhereTheTokenizerIs) {
  const auto of = [](const char* train, const char* tokenizer) {
    return tokenizer_path({.train = train, .validation = {}, .tokenizer = tokenizer});
  };
  for (const char* beside : {"", "bytes", "train:300", "train:4k"}) {
    EXPECT_EQ(of("data/train.bin", beside), "data/tokenizer");
    EXPECT_EQ(of("train.bin", beside), "tokenizer");
    EXPECT_EQ(of("", beside), "");
  }
  EXPECT_EQ(of("data/train.bin", "gpt2"), "gpt2");
}

// The keys that help are named, all of them at once: of a text that is too short nobody knows them.
TEST_F(TextDataTest, ATextThatIsTooShortNamesTheKeysThatHelp) {
  prepared("bytes");
  Config config = open("");
  config.batch.sequence_length = 1'000'000;
  const auto refused = [&](const char* key, const char* file) {
    return message_of([&] { open_data(key, path(file), config, false, 0, 1); });
  };
  const std::string train = refused("data.train", "data/train.bin"),
                    validation = refused("data.validation", "data/validation.bin");
  EXPECT_NE(train.find("give more text, or batch.sequence_length="), std::string::npos) << train;
  EXPECT_TRUE(train.ends_with(" or less")) << train;
  EXPECT_NE(validation.find(" or less, or train without a validation set: data.validation= and train.evaluate_every=0"),
            std::string::npos)
      << validation;
}

TEST_F(TextDataTest, WhatAPatternLeavesOutIsCounted) {
  fs::create_directories(folder_ / "many/folder");
  const std::string tokens(100, '\1');
  for (const char* name : {"many/a.bin", "many/b.bin", "many/gone.idx", "many/folder/c.bin"}) write(name, tokens);
  fs::create_symlink(folder_ / "nowhere", folder_ / "many/d.bin");
  const Config config = of_vocabulary(300);
  const auto described = [&](const std::string& name) {
    return describe_data("data.train", open_data("data.train", path(name), config, false, 0, 1), 1).at(0);
  };
  const std::string line = described("many/*");
  EXPECT_NE(line.find(", 2 files, "), std::string::npos) << line;
  EXPECT_NE(line.find("; the pattern leaves out 1 folder, 1 index without tokens, 1 link without target"),
            std::string::npos)
      << line;
  fs::create_directory_symlink(folder_ / "many/folder", folder_ / "many/linked");
  EXPECT_NE(described("many/**/[abc].bin").find("leaves out 1 linked folder"), std::string::npos);
  for (const char* all : {"many/[ab].bin", "many/a.bin"})
    EXPECT_EQ(described(all).find("the pattern leaves out"), std::string::npos) << all;
}

// The same file by another name, a link, or a copy: what is held out is held out by its content.
TEST_F(TextDataTest, WhatIsHeldOutIsNotTrainedOnUnderAnotherName) {
  std::string tokens, others;
  for (int i = 0; i < 100; i++) tokens += fmt::format("{:c}{:c}", char(1 + i % 7), '\0');
  others = tokens;
  others[others.size() - 2] = '\11';
  const std::string validation = write("held.bin", tokens);
  write("copy.bin", tokens);
  write("other.bin", others);
  write("longer.bin", tokens + others);
  fs::create_hard_link(validation, path("hard.bin"));
  fs::create_symlink(validation, path("soft.bin"));
  Config config = of_vocabulary(300);
  config.data.validation = validation;
  const auto overlaps = [&](const std::string& train) {
    const Loader data = open_data("data.train", train, config, false, 0, 1);
    return trains_on_validation(config, data, open_validation(config, nullptr, 0, 1).front());
  };
  for (const char* name : {"held.bin", "hard.bin", "soft.bin", "copy.bin"}) {
    expect_refusal([&] { overlaps(path(name)); },
                   {path(name), "of data.validation = " + validation, "data.allow_overlap = true"});
    expect_refusal([&] { overlaps(path("other.bin") + " 1\n" + path(name) + " 2\n"); }, {path(name)});
  }
  for (const char* name : {"other.bin", "longer.bin"}) EXPECT_FALSE(overlaps(path(name))) << name;
  config.data.allow_overlap = true;
  for (const char* name : {"held.bin", "copy.bin"}) EXPECT_TRUE(overlaps(path(name))) << name;
  EXPECT_FALSE(overlaps(path("other.bin")));
}

TEST_F(TextDataTest, AFileUnderTwoNamesIsTold) {
  std::string a, b;
  for (int i = 0; i < 200; i++) {
    a += {static_cast<char>(1 + i % 7), '\0'};
    b += {static_cast<char>(2 + i % 5), '\0'};
  }
  fs::create_directory(path("p"));
  write("a.bin", a);
  write("b.bin", b);
  for (const char* name : {"copy.bin", "p/a.bin", "p/copy.bin"}) write(name, a);
  fs::create_symlink("a.bin", path("soft.bin"));
  fs::create_hard_link(path("a.bin"), path("hard.bin"));
  Config config = of_vocabulary(30000);
  config.batch.sequence_length = 8;
  const auto told = [&](const std::string& train) {
    return files_trained_on_twice(open_data("data.train", train, config, false, 0, 1));
  };
  for (const char* name : {"soft.bin", "hard.bin", "copy.bin", "p/*.bin"}) {
    const std::vector<std::string> lines = told(path("a.bin") + " 1\n" + path("b.bin") + " 1\n" + path(name) + " 1\n");
    EXPECT_EQ(lines.size(), name == std::string("p/*.bin") ? 2u : 1u) << name;
    EXPECT_NE(lines.front().find("twice as often"), std::string::npos) << lines.front();
  }
  EXPECT_EQ(told(path("p/*.bin")).size(), 1u);
  EXPECT_TRUE(told(path("a.bin") + " 1\n" + path("b.bin") + " 1\n").empty());
}

// The tokenizer or a key names it, or it is not known; without documents that are kept apart nobody asks.
TEST_F(TextDataTest, WhichTokenEndsADocument) {
  prepared("train:300");
  Config config = of_vocabulary(0);
  config.data.train = path("data/train.bin");
  open_tokenizer(config);
  EXPECT_EQ(config.data.end_of_text, -1);
  config.data.isolate_documents = true;
  open_tokenizer(config);
  EXPECT_EQ(config.data.end_of_text, load_tokenizer(path("data/tokenizer"))->end_of_text());
  EXPECT_NO_THROW(open_data("data.train", config.data.train, config, false, 0, 1));
  config.data.end_of_text = 7;
  open_tokenizer(config);
  EXPECT_EQ(config.data.end_of_text, 7);
  const auto refused = [&](int64_t token, const std::vector<std::string>& words) {
    config.data.end_of_text = token;
    expect_refusal([&] { open_data("data.train", config.data.train, config, false, 0, 1); }, words);
  };
  refused(-1, {"data.isolate_documents = true", "data.tokenizer", "data.end_of_text"});
  refused(300, {"data.end_of_text = 300", "vocabulary of 300"});
  config.data.isolate_documents = false;
  EXPECT_NO_THROW(open_data("data.train", config.data.train, config, false, 0, 1));
}

// A start believes what prepare has noted of a file, and reads it where that is another since.
TEST_F(TextDataTest, LargestIdsAreThoseThatPrepareNoted) {
  prepared("bytes");
  const std::string train = path("data/train.bin"), validation = path("data/validation.bin");
  for (const std::string& file : {train, validation}) {
    const TokenStream stream = TokenStream::open(file);
    EXPECT_EQ(noted_largest_id(file), stream.max_token(0, stream.size())) << file;
  }
  EXPECT_FALSE(noted_largest_id(path("text")));
  const Config config = of_vocabulary(257);
  const auto open_train = [&] { open_data("data.train", train, config, false, 0, 1); };
  const auto time = fs::last_write_time(train);
  std::fstream(train, std::ios::in | std::ios::out | std::ios::binary) << "\xff\x7f";
  fs::last_write_time(train, time);
  EXPECT_NO_THROW(open_train()) << "it is not read";
  fs::last_write_time(train, fs::last_write_time(path("data/prepared.json")) + std::chrono::seconds(1));
  EXPECT_FALSE(noted_largest_id(train));
  expect_refusal(open_train, {"has token 32767"});
  fs::resize_file(train, fs::file_size(train) - 2);
  fs::last_write_time(train, time);
  EXPECT_FALSE(noted_largest_id(train)) << "another size";
  for (const char* note : {"{}", "[", "{\"largest_ids\": {\"validation.bin\": 3}}"}) {
    std::ofstream(path("data/prepared.json")) << note;
    EXPECT_FALSE(noted_largest_id(validation)) << note;
  }
}

TEST_F(TextDataTest, AMalformedTokenizerIsRefusedWhateverIsThere) {
  prepared("bytes");
  for (const char* spec : {"train:", "train:257", "train:4k", "train:-300", "train:99999999999999999999"})
    for (const int64_t vocab : {0, 300})
      expect_refusal([&] { open(spec, vocab); }, {fmt::format("\"{}\"", spec), "258 to 16777216", "train:4096"});
}

TEST_F(TextDataTest, AnotherTokenizerThanThatOfTheDataIsRefused) {
  const std::string folder = path("data/tokenizer");
  prepared("bytes");
  expect_refusal([&] { open("train:9999"); },
                 {"data.tokenizer = train:9999", folder, "bytes, with 257 ids", "empty", "prepare"});
  for (const char* right : {"bytes", "", folder.c_str()}) {
    EXPECT_EQ(open(right).model.vocab, 257);
    EXPECT_EQ(open(right).data.tokenizer, folder);
  }
  prepared("train:300");
  expect_refusal([&] { open("train:301"); }, {"data.tokenizer = train:301", folder, "a BPE of 300 ids", "train:301"});
  expect_refusal([&] { open("bytes"); }, {"data.tokenizer = bytes", folder, "a BPE of 300 ids"});
  EXPECT_EQ(open("train:300").model.vocab, 300);
}

TEST_F(TextDataTest, TheLargestTokenThereCanBeIsTooLarge) {
  IndexedDatasetWriter writer(path("large"), 70000);
  writer.add(std::vector<int32_t>(9, 2147483647));
  writer.end_document();
  writer.finish();
  expect_refusal([&] { open_data("data.train", path("large.bin"), of_vocabulary(70000), false, 0, 1); },
                 {"token 2147483647", "vocabulary of 70000", "at least 2147483648"});
}

TEST_F(TextDataTest, RawTokensCannotStandForALargeVocabulary) {
  const std::string raw = write("raw.bin", std::string(40, '\1'));
  const auto open = [&](int64_t vocab) { open_data("data.train", raw, of_vocabulary(vocab), false, 0, 1); };
  expect_refusal([&] { open(65537); },
                 {"data.train = " + raw, "no .idx", "uint16", "model.vocab = 65537", "prepare", "65536 or less"});
  EXPECT_NO_THROW(open(65536));
}

}  // namespace
}  // namespace megalith
