// A changed byte anywhere is an Error or harmless, never other data and never a crash; verify finds every one.
#include <random>

#include "checkpoints/checksum.h"
#include "kernels/system/file_calls.h"
#include "tests/checkpoints/helpers.h"
#include "tests/long_tests.h"

namespace megalith {
namespace {

using namespace test;

// A checkpoint, and one of its files to damage.
class Damaged : public ::testing::TestWithParam<const char*> {
 protected:
  std::string path() const { return checkpoint_ + "/" + GetParam(); }

  TemporaryFolder folder_;
  std::string checkpoint_ = write_checkpoint(folder_.path(), 1, 2, 1);
  std::string good_ = read_file(path());
};

bool right_or_error(const std::string& checkpoint) {
  try {
    CheckpointReader reader(checkpoint);
    return reads_right(reader);
  } catch (const Error&) {
    return true;
  }
}

TEST_P(Damaged, flipped_bytes) {
  std::mt19937 random(1);
  int64_t wrong = 0, unnoticed = 0;
  const size_t stride = 1 + good_.size() / static_cast<size_t>(taken("Damaged.flipped_bytes"));
  for (size_t i = random() % stride; i < good_.size(); i += stride) {
    const auto flipped = static_cast<char>(good_[i] ^ static_cast<char>(1u << random() % 8));
    poke(path(), i, {flipped});
    wrong += !right_or_error(checkpoint_);
    unnoticed += verify_checkpoint(checkpoint_).damaged.empty();
    poke(path(), i, {good_[i]});
  }
  EXPECT_EQ(wrong, 0) << "of " << good_.size() << " bytes";
  EXPECT_EQ(unnoticed, 0) << "of " << good_.size() << " bytes";
}

TEST_P(Damaged, every_length) {
  for (size_t length = good_.size() - 1; length > 0; length -= 1 + length / 100) {
    fs::resize_file(path(), length);
    EXPECT_THROW(CheckpointReader{checkpoint_}, Error) << length;
    EXPECT_FALSE(verify_checkpoint(checkpoint_).damaged.empty()) << length;
  }
  spill(path(), good_ + "more");
  EXPECT_THROW(CheckpointReader{checkpoint_}, Error);
}

TEST_P(Damaged, truncated_after_opening) {
  CheckpointReader reader(checkpoint_);
  spill(path(), good_.substr(0, 100));
  if (std::string(GetParam()) == "manifest.json")
    EXPECT_TRUE(reads_right(reader));
  else
    EXPECT_NE(message_of([&] { reads_right(reader); }).find("truncated"), std::string::npos);
}

TEST_P(Damaged, zeros_and_noise) {
  std::mt19937 random(2);
  for (int round = 0; round < taken("Damaged.zeros_and_noise"); round++) {
    std::string bytes = good_;
    const size_t begin = random() % bytes.size(), length = std::min<size_t>(random() % 600, bytes.size() - begin);
    for (size_t i = begin; i < begin + length; i++) bytes[i] = round % 2 ? static_cast<char>(random()) : '\0';
    poke(path(), 0, bytes);
    EXPECT_TRUE(right_or_error(checkpoint_)) << begin << " " << length;
    EXPECT_EQ(verify_checkpoint(checkpoint_).damaged.empty(), bytes == good_) << begin << " " << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Damaged, ::testing::Values("manifest.json", "rank-00000.h5", "rank-00001.h5"),
                         [](const auto& file) {
                           const std::string name = fs::path(file.param).stem();
                           return name.substr(0, name.find('-')) + std::to_string(file.index);
                         });

TEST(DamageReport, names_file_dataset_and_both_checksums) {
  const TemporaryFolder folder;
  const std::string checkpoint = write_checkpoint(folder.path(), 1, 1, 2);
  const CheckpointReader before(checkpoint);
  const FileRecord& record = before.manifest().files[1];
  const std::string path = checkpoint + "/" + record.name;
  std::string bytes = read_file(path);
  for (const DatasetRecord& d : {record.datasets[0], record.datasets[2]}) bytes[static_cast<size_t>(d.offset)]++;
  spill(path, bytes);

  const DatasetRecord& d = record.datasets[0];
  CheckpointReader reader(checkpoint);
  std::vector<float> out(static_cast<size_t>(whole_tensor(d.shard.name, d.shard.shape).numel()));
  const std::string message = message_of([&] { reader.read(whole_tensor(d.shard.name, d.shard.shape), out.data()); });
  const std::string found = hex(checksum_of(bytes.data() + d.offset, d.shard.numel() * 4));
  for (const std::string& part : {path, d.dataset, hex(d.checksum), found})
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  EXPECT_EQ(verify_checkpoint(checkpoint).damaged.size(), 2u);
}

// Damage of one element of a dataset of which a shard is asked for that begins after its first element, by a
// reader that has read nothing of it yet.
TEST(DamageReport, a_shard_does_not_vouch_for_its_dataset) {
  const TemporaryFolder folder;
  const std::string checkpoint = write_checkpoint(folder.path(), 1, 1, 1);
  const TensorShard whole = whole_tensor("parameters/wte.weight", {17, 6});
  TensorShard wanted = whole;
  wanted.elements.begin = 40;
  wanted.elements.end = 50;
  const FileRecord file = CheckpointReader(checkpoint).manifest().files[0];
  const auto record = std::find_if(file.datasets.begin(), file.datasets.end(),
                                   [&](const DatasetRecord& d) { return d.shard.name == whole.name; });
  ASSERT_EQ(record->shard.numel(), whole.numel());
  const std::string path = checkpoint + "/" + file.name, good = read_file(path);
  std::vector<float> out(10);
  for (const int64_t element : {0, 39, 40, 45, 49, 50, 101}) {
    const auto at = static_cast<size_t>(record->offset + element * 4);
    poke(path, at, {static_cast<char>(good[at] ^ 1)});
    EXPECT_THROW(CheckpointReader(checkpoint).read(wanted, out.data()), CorruptFile) << element;
    poke(path, at, {good[at]});
  }
  CheckpointReader reader(checkpoint);
  reader.read(wanted, out.data());
  EXPECT_EQ(out[0], 40);
}

// A checkpoint that cannot be looked at is not a damaged one.
template <class Call>
std::string plain_error_of(const Call& call) {
  try {
    call();
  } catch (const CorruptFile& e) {
    return fmt::format("CorruptFile: {}", e.what());
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(NoDamage, no_more_open_files) {
  const TemporaryFolder folder;
  const std::string checkpoint = write_checkpoint(folder.path(), 1, 1, 2);
  const std::string manifest = "cannot open " + checkpoint + "/manifest.json: Too many open files";
  CheckpointReader reader(checkpoint);
  const FileHook none([](const FileEvent& e) { return FileFate{e.call == FileCall::open ? EMFILE : 0}; });
  for (const std::string& message :
       {plain_error_of([&] { CheckpointReader{checkpoint}; }), plain_error_of([&] { why_of_no_use(checkpoint); }),
        plain_error_of([&] { verify_checkpoint(checkpoint); })})
    EXPECT_TRUE(message.starts_with(manifest)) << message;
  const std::string message = plain_error_of([&] { reads_right(reader); });
  EXPECT_TRUE(message.starts_with("cannot open " + checkpoint + "/rank-0000")) << message;
}

// As many files as the checkpoint has ranks need not be open at a time.
TEST(NoDamage, one_open_file_is_enough) {
  if (MEGALITH_SANITIZED) GTEST_SKIP() << "the sanitizer opens a pipe whenever it looks at an object";
  const TemporaryFolder folder;
  const std::string checkpoint = write_checkpoint(folder.path(), 1, 1, 12);
  const FewFiles one(1);
  CheckpointReader reader(checkpoint);
  EXPECT_TRUE(reads_right(reader));
  EXPECT_TRUE(reads_right(reader));
}

// A file that is a loop of links is absent: a resume falls back to an older checkpoint.
TEST(DamageReport, loops_of_links_are_skipped) {
  const TemporaryFolder folder;
  const std::string checkpoint = write_checkpoint(folder.path(), 1, 1, 2);
  for (const char* name : {"/rank-00001.h5", "/manifest.json"}) {
    fs::remove(checkpoint + name);
    fs::create_symlink(checkpoint + name, checkpoint + name);
    const CheckpointListing found = CheckpointStore(folder.path()).list();
    EXPECT_TRUE(found.complete.empty());
    ASSERT_EQ(found.skipped.size(), 1u);
    EXPECT_TRUE(found.skipped[0].reason.starts_with(checkpoint + name)) << found.skipped[0].reason;
  }
}

// Whoever edits the manifest and its checksum gets what he asked for, but not a crash.
TEST(DamageReport, forged_manifests_do_not_crash) {
  const TemporaryFolder folder;
  const std::string checkpoint = write_checkpoint(folder.path(), 1, 1, 1), path = checkpoint + "/manifest.json";
  const std::string good = read_file(path);
  const size_t digits = good.find('"', good.find(':')) + 1;
  std::mt19937 random(3);
  const std::string alphabet = "0123456789-[]{}\",:aefn.";
  int accepted = 0;
  for (int round = 0; round < 600; round++) {
    std::string forged = good;
    for (unsigned k = 0; k < 1 + random() % 3; k++)
      forged[digits + 16 + random() % (good.size() - digits - 16)] = alphabet[random() % alphabet.size()];
    forged.replace(digits, 16, 16, '0');
    forged.replace(digits, 16, hex(checksum_of(forged.data(), static_cast<int64_t>(forged.size()))));
    poke(path, 0, forged);
    try {
      CheckpointReader reader(checkpoint);
      accepted++;
      for (const TestTensor& t : test_tensors()) {
        std::vector<float> out(128);
        reader.read(whole_tensor(t.name, t.shape), out.data());
      }
    } catch (const Error&) {
    }
    try {
      verify_checkpoint(checkpoint);
    } catch (const Error&) {  // the manifest of another version, or of another program
    }
  }
  EXPECT_GT(accepted, 0);  // else the forgery was recognised as one, and nothing was tried
}

}  // namespace
}  // namespace megalith
