// What the ranks compare before a run: what a rank's fingerprint sees, and how differences are named.
#include "trainer/job/ranks_agree.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace megalith {
namespace {

namespace fs = std::filesystem;

const LaunchFingerprint rank_0 = {{"model.layers", {"12", ""}},
                                  {"train.seed", {"1", ""}},
                                  {"executable", {"E", "/bin/megalith"}},
                                  {"the tokenizer", {"none", ""}}};

LaunchFingerprint rank_0_but(const std::string& name, const std::array<std::string, 2>& thing) {
  LaunchFingerprint other = rank_0;
  other[name] = thing;
  return other;
}

TEST(Differences, AreNamedWithBothSides) {
  EXPECT_EQ(differences(rank_0, rank_0), "");
  EXPECT_EQ(differences(rank_0_but("executable", {"E", "/local/megalith"}), rank_0), "") << "the same bytes elsewhere";
  EXPECT_EQ(differences(rank_0_but("executable", {"F", "/local/megalith"}), rank_0),
            "\n  executable: /local/megalith (F); on rank 0: /bin/megalith (E)");
  LaunchFingerprint two = rank_0_but("train.seed", {"2", ""});
  two["the tokenizer"] = {"V", "/data/tokenizer"};
  EXPECT_EQ(differences(two, rank_0),
            "\n  the tokenizer: /data/tokenizer (V); on rank 0: none\n  train.seed: 2; on rank 0: 1");
}

// Versions of the program differ in their keys.
TEST(Differences, AreFoundInKeysOfOneSideOnly) {
  const LaunchFingerprint newer = rank_0_but("model.tail", {"3", ""});
  EXPECT_EQ(differences(newer, rank_0), "\n  model.tail: 3; on rank 0: unknown");
  EXPECT_EQ(differences(rank_0, newer), "\n  model.tail: unknown; on rank 0: 3");
}

TEST(Differences, StayReadable) {
  LaunchFingerprint many = rank_0;
  for (int i = 0; i < 20; i++) many[fmt::format("key.{:02}", i)] = {"1", ""};
  const std::string text = differences(many, rank_0);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 9);
  EXPECT_TRUE(text.ends_with("\n  key.07: 1; on rank 0: unknown\n  and 12 more")) << text;
}

class LaunchFingerprintTest : public testing::Test {
 protected:
  LaunchFingerprintTest() : folder_(fs::temp_directory_path() / fmt::format("megalith-ranks-agree-{}", ::getpid())) {
    fs::create_directories(folder_);
    config_.data.train = (folder_ / "train.bin").string();
  }
  ~LaunchFingerprintTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& bytes) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  std::string content(const std::string& name) const { return launch_fingerprint(config_).at(name)[0]; }
  std::string train_content() const { return content("the file of data.train"); }

  fs::path folder_;
  Config config_;
};

TEST_F(LaunchFingerprintTest, holds_every_key_of_the_config) {
  config_.run.output = "a  # b = c";
  const LaunchFingerprint mine = launch_fingerprint(config_);
  for (const auto& [key, value] : key_values(config_)) EXPECT_EQ(mine.at(key)[0], value) << key;
  EXPECT_EQ(mine.at("executable")[1], fs::read_symlink("/proc/self/exe"));
  EXPECT_EQ(mine.at("the file of data.validation")[0], "none");
  EXPECT_EQ(mine.at("the tokenizer")[0], "none");
}

TEST_F(LaunchFingerprintTest, tells_files_apart) {
  EXPECT_NE(train_content().find("No such file or directory"), std::string::npos) << train_content();
  write("train.bin", "tokens");
  const std::string tokens = train_content();
  EXPECT_TRUE(tokens.starts_with("6 bytes, hash ")) << tokens;
  write("train.bin", "tokenS");
  EXPECT_NE(train_content(), tokens);
  write("train.idx", "index");
  const std::string indexed = train_content();
  write("train.idx", "Index");
  EXPECT_NE(train_content(), indexed);

  const auto tokenizer = [&] { return content("the tokenizer"); };
  write("tokenizer/vocab.json", "{}");
  const std::string vocab = tokenizer();
  write("tokenizer/merges.txt", "a b");
  EXPECT_NE(tokenizer(), vocab);
  write("other/merges.txt", "a b");
  config_.data.tokenizer = (folder_ / "other").string();
  EXPECT_TRUE(tokenizer().starts_with("3 bytes, hash ")) << tokenizer();

  config_.data.train = (folder_ / "tokenizer").string();
  EXPECT_NE(train_content().find("is not a plain file"), std::string::npos) << train_content();
}

// Not all of a large file is read, so a single byte can go unseen, as the header says.
TEST_F(LaunchFingerprintTest, reads_all_of_64_MiB_and_256_blocks_of_more) {
  constexpr size_t mib = 1 << 20, block = 256 << 10;
  const auto seen = [&](size_t size, size_t at) {
    write("train.bin", "");
    fs::resize_file(folder_ / "train.bin", size);
    const std::string before = train_content();
    std::fstream(folder_ / "train.bin", std::ios::binary | std::ios::in | std::ios::out)
        .seekp(static_cast<std::streamoff>(at))
        .put('y');
    return train_content() != before;
  };
  for (size_t at : {size_t{0}, block, 10 * mib + 17, 64 * mib - 1}) EXPECT_TRUE(seen(64 * mib, at)) << at;
  const size_t size = 200 * mib + 5, distance = (size - block + 254) / 255;
  for (size_t at : {size_t{0}, block - 1, distance, distance + block - 1, size - 1}) EXPECT_TRUE(seen(size, at)) << at;
  EXPECT_FALSE(seen(size, block));
  EXPECT_FALSE(seen(size, distance - 1));
}

}  // namespace
}  // namespace megalith
