// What the ranks tell each other before a run: what a rank's fingerprint sees, and who is named when they differ.
#include "trainer/job/handshake.h"

#include <filesystem>
#include <fstream>

#include "tests/pure/testing.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

// n ranks that agree, eight to a host.
std::vector<Fingerprint> alike(size_t n) {
  std::vector<Fingerprint> ranks(n);
  for (size_t r = 0; r < n; r++)
    ranks[r] = {fmt::format("host{}", r / 8),
                {{"model.layers", "12"}, {"run.output", "\"run\""}, {"train.steps", "3"}, {"train.seed", "1"}},
                {{{"/bin/megalith", "E"}, {"/data/train.bin", "T"}, {"", "none"}, {"/data/tokenizer", "V"}}}};
  return ranks;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
#define EXPECT_HOLDS(text, part) EXPECT_TRUE(holds(text, part)) << "\"" << (part) << "\" is missing from\n" << (text)

TEST(Disagreement, is_empty_when_all_agree) {
  for (size_t n : {1, 2, 7, 256}) EXPECT_EQ(disagreement(alike(n)), "") << n << " ranks";
  auto ranks = alike(16);
  ranks[9].files[1].path = "/local/train.bin";  // another place, the same bytes
  EXPECT_EQ(disagreement(ranks), "");
}

TEST(Disagreement, names_the_minority) {
  auto ranks = alike(4);
  ranks[2].config["train.steps"] = "5";
  EXPECT_EQ(disagreement(ranks),
            "the ranks do not agree on what to run; nothing was begun. Give every rank the same config file and "
            "overrides:\n"
            "  config: rank 2 on host0 has train.steps = 5; 3 of the 4 ranks have train.steps = 3");
  ranks[0].config["train.steps"] = "5";
  ranks = {ranks[0], ranks[1], ranks[2], ranks[3], ranks[0], ranks[2]};
  EXPECT_HOLDS(disagreement(ranks), "ranks 1, 3 on host0 have train.steps = 3; 4 of the 6 ranks have train.steps = 5");
}

TEST(Disagreement, names_both_sides_of_a_tie) {
  auto ranks = alike(16);
  for (size_t r = 8; r < 16; r++) ranks[r].files[0] = {"/bin/megalith", "F"};
  EXPECT_EQ(disagreement(ranks),
            "the ranks do not agree on what to run; nothing was begun. Give every rank the same executable:\n"
            "  executable: ranks 8-15 on host1 have /bin/megalith (F); ranks 0-7 on host0 have /bin/megalith (E)");
}

TEST(Disagreement, tells_of_two_things_at_once) {
  auto ranks = alike(8);
  ranks[1].config["model.layers"] = "24";
  ranks[6].files[1].content = "U";
  ranks[6].files[3] = {"", "none"};
  const std::string text = disagreement(ranks);
  EXPECT_HOLDS(text, "the same config file and overrides, the same data.train, the same tokenizer:\n");
  EXPECT_HOLDS(text, "\n  config: rank 1 on host0 has model.layers = 24; 7 of the 8 ranks have model.layers = 12\n");
  EXPECT_HOLDS(text, "\n  data.train: rank 6 on host0 has /data/train.bin (U); 7 of the 8 ranks have ");
  EXPECT_HOLDS(text, "\n  tokenizer: rank 6 on host0 has none; 7 of the 8 ranks have /data/tokenizer (V)");
  EXPECT_FALSE(holds(text, "executable")) << text;
}

TEST(Disagreement, finds_one_of_256_ranks) {
  for (size_t odd = 0; odd < 256; odd++) {
    auto ranks = alike(256);
    ranks[odd].files[1].content = "U";
    EXPECT_HOLDS(disagreement(ranks),
                 fmt::format("\n  data.train: rank {} on host{} has /data/train.bin (U); 255 of the 256 ranks have "
                             "/data/train.bin (T)",
                             odd, odd / 8));
  }
}

TEST(Disagreement, stays_readable) {
  auto ranks = alike(256);
  for (size_t r = 0; r < 256; r++) ranks[r].config["run.output"] = fmt::format("\"run{}\"", r);
  std::string text = disagreement(ranks);
  EXPECT_HOLDS(text, "rank 1 on host0 has run.output = \"run1\"; rank 0 on host0 has run.output = \"run0\"");
  EXPECT_HOLDS(text, "config: there are 256 different ones in all");
  EXPECT_LT(text.size(), 1000u);

  ranks = alike(256);
  for (size_t r = 0; r < 256; r += 2) ranks[r].config.clear();
  text = disagreement(ranks);
  EXPECT_HOLDS(text, "model.layers = 12, run.output = \"run\", train.seed = 1 and 1 more");
  EXPECT_HOLDS(text, "(no such key)");
  EXPECT_HOLDS(text, "ranks 0, 2, 4, 6 on host0 and ranks 8, 10, 12, 14 on host1");
  EXPECT_HOLDS(text, "and ranks on 28 more hosts");
  EXPECT_LT(text.size(), 1500u);
}

class FingerprintTest : public testing::Test {
 protected:
  FingerprintTest() : folder_(fs::temp_directory_path() / fmt::format("megalith-handshake-{}", ::getpid())) {
    fs::create_directories(folder_);
    config_.data.train = (folder_ / "train.bin").string();
  }
  ~FingerprintTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& bytes) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  std::string train_content() const { return fingerprint_of(config_).files[1].content; }

  fs::path folder_;
  Config config_;
};

TEST_F(FingerprintTest, survives_the_journey) {
  write("train.bin", "tokens");
  const Fingerprint mine = fingerprint_of(config_);
  EXPECT_TRUE(fingerprint_from(to_text(mine)) == mine);
  EXPECT_EQ(mine.files[0].path, fs::read_symlink("/proc/self/exe"));
  EXPECT_EQ(mine.files[2].content, "none");
  EXPECT_EQ(mine.files[3].content, "none");
  // From another version: whatever came, and no crash.
  EXPECT_EQ(fingerprint_from("host").host, "host");
  EXPECT_EQ(fingerprint_from(""), Fingerprint{});
  EXPECT_HOLDS(disagreement({mine, fingerprint_from("host")}), "executable: ");
}

TEST_F(FingerprintTest, holds_every_key_of_the_config) {
  config_.run.output = "a  # b = c";
  EXPECT_EQ(fingerprint_of(config_).config, key_values(config_));
}

TEST_F(FingerprintTest, tells_files_apart) {
  EXPECT_HOLDS(train_content(), "cannot be read: No such file or directory");
  write("train.bin", "tokens");
  const std::string tokens = train_content();
  EXPECT_TRUE(tokens.starts_with("6 bytes, hash ")) << tokens;
  write("train.bin", "tokenS");
  EXPECT_NE(train_content(), tokens);
  write("train.idx", "index");
  const std::string indexed = train_content();
  write("train.idx", "Index");
  EXPECT_NE(train_content(), indexed);

  const auto tokenizer = [&] { return fingerprint_of(config_).files[3].content; };
  write("tokenizer/vocab.json", "{}");
  const std::string vocab = tokenizer();
  write("tokenizer/merges.txt", "a b");
  EXPECT_NE(tokenizer(), vocab);
  write("other/merges.txt", "a b");
  config_.data.tokenizer = (folder_ / "other").string();
  EXPECT_TRUE(tokenizer().starts_with("merges.txt 3 bytes, hash ")) << tokenizer();

  config_.data.train = folder_.string();
  EXPECT_EQ(train_content(), "cannot be read: not a file");
}

// Beyond 6 MiB the ends and 64 blocks are read; the header says so, and this is why a single byte can go unseen.
TEST_F(FingerprintTest, reads_the_ends_and_64_blocks_of_a_large_file) {
  constexpr size_t MiB = 1 << 20, size = 40 * MiB, block = 64 << 10;
  std::string bytes(size, 'x');
  write("train.bin", bytes);
  const std::string before = train_content();
  const auto seen = [&](size_t at) {
    std::fstream file(folder_ / "train.bin", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at)).put('y');
    file.close();
    const bool found = train_content() != before;
    file.open(folder_ / "train.bin", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at)).put('x');
    return found;
  };
  for (size_t at : {size_t{0}, MiB - 1, MiB, MiB + block - 1, size - MiB - 1, size - MiB, size - 1})
    EXPECT_TRUE(seen(at)) << at;
  EXPECT_FALSE(seen(MiB + block));
  EXPECT_EQ(train_content(), before);
  // Another file differs in some block: here, in any stretch as long as the distance of two.
  const size_t distance = (size - 2 * MiB - block) / 63;
  for (size_t at = 3 * MiB; at < size; at += 11 * MiB) {
    std::string other = bytes;
    other.replace(at, distance, distance, 'y');
    write("train.bin", other);
    EXPECT_NE(train_content(), before) << at;
  }
}

}  // namespace
}  // namespace megalith
