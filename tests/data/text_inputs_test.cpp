// Names stand for files, and bytes come out of compressed ones.
#include "data/corpus/text_inputs.h"

#include <sys/stat.h>

#include <thread>

#include "data/corpus/byte_source.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/compressed.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

using test::gzipped;
using test::Scratch;
using test::xz_compressed;
using test::zstd_compressed;

std::vector<std::string> paths_of(const Scratch& scratch, const std::vector<std::string>& names) {
  std::vector<std::string> full, found;
  for (const std::string& name : names) full.push_back(scratch.path(name));
  for (const TextInput& input : find_texts(full, false)) found.push_back(input.path.substr(scratch.path("").size()));
  return found;
}

std::string all_of(const TextInput& input, int64_t skip = 0) {
  const auto source = open_bytes(input);
  source->skip(skip);
  std::string text, part(1000, '\0');
  while (const size_t n = source->read(part.data(), part.size())) text.append(part, 0, n);
  return text;
}

TEST(TextInputs, FoldersAndPatternsInOrder) {
  Scratch scratch;
  for (const char* name : {"c/b.txt", "c/a/z.jsonl.zst", "c/B.txt.gz", "c/a.json.xz", "c/image.png", "c/.hidden.txt",
                           "c/.git/x.txt", "d1.txt", "d2.txt", "e", "f[1].txt"})
    scratch.write(name, "x");
  scratch.write("c/empty.txt", "");
  scratch.write("only/image.png", "x");
  using Paths = std::vector<std::string>;
  EXPECT_EQ(paths_of(scratch, {"c"}), (Paths{"c/B.txt.gz", "c/a.json.xz", "c/a/z.jsonl.zst", "c/b.txt"}));
  EXPECT_EQ(paths_of(scratch, {"e", "d?.txt"}), (Paths{"e", "d1.txt", "d2.txt"}))
      << "names in the order they are given";
  EXPECT_EQ(paths_of(scratch, {"f[1].txt"}), (Paths{"f[1].txt"})) << "a name before a pattern";
  EXPECT_EQ(paths_of(scratch, {"*/a"}), (Paths{"c/a/z.jsonl.zst"}));

  const auto inputs = find_texts({scratch.path("c")}, false);
  EXPECT_FALSE(inputs[0].json_lines);
  EXPECT_TRUE(inputs[1].json_lines);
  EXPECT_TRUE(inputs[2].json_lines);
  EXPECT_FALSE(find_texts({"-"}, false)[0].json_lines);
  EXPECT_TRUE(find_texts({"-"}, true)[0].json_lines);

  EXPECT_ERROR(paths_of(scratch, {"g*.txt"}), "g*.txt", "no file matches");
  EXPECT_ERROR(paths_of(scratch, {"only"}), "only", "has no text", ".jsonl");
  EXPECT_ERROR(paths_of(scratch, {"c/empty.txt"}), "empty (0 bytes)");
  EXPECT_ERROR(paths_of(scratch, {"c", "c/../c/b.txt"}), "b.txt is named twice");
  EXPECT_ERROR(paths_of(scratch, {"absent"}), "absent", "No such file");
}

// None, one or several folders; files only, each once.
TEST(TextInputs, TwoStarsAreAnyFolders) {
  Scratch scratch;
  for (const char* name : {"a/1.txt", "a/b/2.txt", "a/b/c/3.txt", "a/b/c/4.md", "a/.git/5.txt", "a/[x]/6.txt", "7.txt"})
    scratch.write(name, "x");
  std::filesystem::create_directory_symlink(scratch.path("a"), scratch.path("a/b/again"));
  using Paths = std::vector<std::string>;
  const Paths all = {"a/1.txt", "a/[x]/6.txt", "a/b/2.txt", "a/b/c/3.txt"};
  EXPECT_EQ(paths_of(scratch, {"a/**/*.txt"}), all);
  EXPECT_EQ(paths_of(scratch, {"a/**/**/*.txt"}), all);
  EXPECT_EQ(paths_of(scratch, {"a/**/c/*.txt"}), (Paths{"a/b/c/3.txt"}));
  EXPECT_EQ(paths_of(scratch, {"a/b/**"}), (Paths{"a/b/2.txt", "a/b/c/3.txt", "a/b/c/4.md"}));
  EXPECT_EQ(paths_of(scratch, {"?/**/[34].*"}), (Paths{"a/b/c/3.txt", "a/b/c/4.md"}));
  EXPECT_EQ(paths_of(scratch, {"**/*.txt"}).size(), 5u);
  EXPECT_ERROR(paths_of(scratch, {"a/**.txt"}), "has ** next to other characters", "a/**/*.txt");
  EXPECT_ERROR(paths_of(scratch, {"a/**/*.json"}), "no file matches");
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path("a"));
  EXPECT_EQ(find_texts({"**/*.txt"}, false).size(), all.size());
  EXPECT_EQ(find_texts({"**/*.txt"}, false)[0].path, "1.txt");
  std::filesystem::current_path(here);
}

TEST(TextInputs, WhatAFolderHoldsBesideItsTextsIsCounted) {
  Scratch scratch;
  for (const char* name : {"c/a.txt", "c/b/c.jsonl", "c/d.md", "c/b/e.csv", "c/.hidden.txt", "c/.git/f.txt"})
    scratch.write(name, "x");
  scratch.write("c/empty.txt", "");
  scratch.write("other/g.txt", "x");
  std::filesystem::create_directory_symlink(scratch.path("other"), scratch.path("c/link"));
  std::filesystem::create_symlink(scratch.path("nowhere"), scratch.path("c/h.txt"));
  std::filesystem::create_symlink(scratch.path("other/g.txt"), scratch.path("c/i.txt"));
  ASSERT_EQ(::mkfifo(scratch.path("c/j.txt").c_str(), 0600), 0);
  LeftOut left_out;
  EXPECT_EQ(find_texts({scratch.path("c")}, false, &left_out).size(), 3u);  // a, c and, by a link, g
  EXPECT_EQ(to_text(left_out),
            "1 empty file, 2 files with other endings, 2 hidden files, 1 link without target, 1 linked folder, 1 pipe "
            "or device");
  LeftOut below;
  EXPECT_EQ(find_texts({scratch.path("c/**/*.jsonl")}, false, &below).size(), 1u);
  EXPECT_EQ(to_text(below), "1 linked folder") << "which the pattern may have meant";
  scratch.write("none/a.md", "x");
  EXPECT_ERROR(find_texts({scratch.path("none")}, false), "has no text", "but 1 file with another ending");
}

TEST(TextInputs, AddressesAreNoPaths) {
  EXPECT_ERROR(find_texts({"s3://bucket/a.txt"}, false), "s3://bucket/a.txt is not a path",
               "aws s3 cp s3://bucket/a.txt -");
  EXPECT_ERROR(find_texts({"https://host/*.txt"}, false), "curl -sL https://host/*.txt | megalith prepare --text -");
  Scratch scratch;
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path(""));
  EXPECT_ERROR(make_folders("s3://bucket/run", "choose another"), "s3://bucket/run is not a path");
  EXPECT_ERROR(File("gs://bucket", File::Use::create), "gs://bucket is not a path");
  EXPECT_ERROR(load_tokenizer("hf://gpt2"), "hf://gpt2 is not a path");
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path("")));
  std::filesystem::current_path(here);
}

TEST(TextInputs, AChangeIsNoticed) {
  Scratch scratch;
  const auto input = find_texts({scratch.write("a.txt", "some text")}, false)[0];
  check_unchanged(input);
  scratch.write("a.txt", "some other text");
  EXPECT_ERROR(check_unchanged(input), "a.txt changed", "9 bytes and has 15");
}

TEST(ByteSource, EveryCompressionGivesTheSameBytes) {
  Scratch scratch;
  const std::string text = test::random_text(700'000, 3), more = test::random_text(10, 4);
  scratch.write("plain", text + more);
  scratch.write("a.gz", gzipped(text) + gzipped(more));
  scratch.write("a.zst", zstd_compressed(text) + zstd_compressed(more));
  scratch.write("a.xz", xz_compressed(text) + xz_compressed(more));
  scratch.write("no_ending", zstd_compressed(text + more));
  for (const char* name : {"plain", "a.gz", "a.zst", "a.xz", "no_ending"})
    for (const int64_t skip : {0, 3, 650'000, 2'000'000}) {
      const auto input = find_texts({scratch.path(name)}, false)[0];
      EXPECT_TRUE(all_of(input, skip) ==
                  (text + more).substr(std::min((text + more).size(), static_cast<size_t>(skip))))
          << name << " from " << skip;
    }
}

TEST(ByteSource, ProgressIsInBytesOfTheFile) {
  Scratch scratch;
  const std::string bytes = gzipped(test::random_text(500'000, 1));
  const auto source = open_bytes(find_texts({scratch.write("a", bytes)}, false)[0]);
  source->skip(1000);
  EXPECT_LT(source->consumed(), static_cast<int64_t>(bytes.size()));
  source->skip(int64_t{1} << 30);
  char none;
  EXPECT_EQ(source->read(&none, 1), 0u);
  EXPECT_EQ(source->consumed(), static_cast<int64_t>(bytes.size()));
}

TEST(ByteSource, DamageIsNamedWithItsPlace) {
  Scratch scratch;
  const std::string text = test::random_text(300'000, 5);
  for (const auto& [ending, bytes] :
       {std::pair{".gz", gzipped(text)}, {".zst", zstd_compressed(text)}, {".xz", xz_compressed(text)}}) {
    const auto read = [&](const std::string& changed) {
      scratch.write(std::string("a") + ending, changed);
      all_of(find_texts({scratch.path(std::string("a") + ending)}, false)[0]);
    };
    read(bytes);
    EXPECT_ERROR(read(bytes.substr(0, bytes.size() / 2)), ending, "truncated");
    EXPECT_ERROR(read(bytes.substr(0, bytes.size() - 1)), ending, "truncated");
    std::string damaged = bytes;
    for (size_t i = damaged.size() / 2; i < damaged.size() / 2 + 20; i++) damaged[i] = static_cast<char>(~damaged[i]);
    EXPECT_ERROR(read(damaged), ending, "cannot be decompressed at byte", "copy or make it again");
    EXPECT_ERROR(read("plain text"), ending, "does not begin as a", "copy it again");
  }
}

TEST(ByteSource, PipesAreReadOnce) {
  Scratch scratch;
  const std::string pipe = scratch.path("pipe"), text = test::random_text(300'000, 6);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::jthread writer([&] { std::ofstream(pipe, std::ios::binary) << zstd_compressed(text); });
  const auto input = find_texts({pipe}, true)[0];
  EXPECT_FALSE(input.is_plain);
  EXPECT_TRUE(input.json_lines);
  EXPECT_TRUE(all_of(input, 7) == text.substr(7));
}

}  // namespace
}  // namespace megalith
