// Checkpoints that somebody made or altered on purpose, with every checksum right: each is refused with the file and
// what is wrong, at a cost that does not depend on what it claims.
#include <hdf5.h>
#include <sys/stat.h>

#include <random>

#include "checkpoints/checksum.h"
#include "tests/checkpoints/helpers.h"
#include "tests/long_tests.h"

namespace megalith {
namespace {

using namespace test;

// As whoever forges a checkpoint does it.
void forge_manifest(const std::string& checkpoint, const Manifest& manifest) {
  spill(checkpoint + "/manifest.json", to_text(manifest));
}
void forge_manifest_text(const std::string& checkpoint, const std::string& from, const std::string& to) {
  std::string text = read_file(checkpoint + "/manifest.json");
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  constexpr size_t digits = 16;
  text.replace(digits, 16, 16, '0');
  text.replace(digits, 16, hex(checksum_of(text.data(), static_cast<int64_t>(text.size()))));
  spill(checkpoint + "/manifest.json", text);
}
// The bytes of a file that are no elements, as [begin, end).
std::vector<std::pair<size_t, size_t>> structure_of(const FileRecord& record) {
  std::vector<std::pair<size_t, size_t>> parts;
  int64_t position = 0;
  const auto until = [&](int64_t end) {
    if (end > position) parts.emplace_back(position, end);
  };
  for (const DatasetRecord& d : record.datasets) {
    until(d.offset);
    position = d.offset + d.bytes();
  }
  until(record.bytes);
  return parts;
}

// Makes size and checksum of a file's structure right again.
void forge_structure(const std::string& checkpoint, Manifest manifest, size_t file) {
  FileRecord& record = manifest.files[file];
  const std::string bytes = read_file(checkpoint + "/" + record.name);
  record.bytes = static_cast<int64_t>(bytes.size());
  Checksum structure;
  for (const auto& [begin, end] : structure_of(record))
    structure.add(bytes.data() + begin, static_cast<int64_t>(end - begin));
  record.structure = structure.value();
  forge_manifest(checkpoint, manifest);
}

class Hostile : public ::testing::Test {
 protected:
  std::string told() const {
    const VerifyReport report = verify_checkpoint(checkpoint_);
    return report.damaged.empty() ? "" : report.damaged[0];
  }
  void expect_told(const std::string& part) const {
    EXPECT_NE(told().find(part), std::string::npos) << part << " in: " << told();
  }
  // Expects that a reader refuses the checkpoint.
  void expect_refused(const std::string& part) const {
    const std::string message = message_of([&] { CheckpointReader{checkpoint_}; });
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
    EXPECT_NE(message.find(checkpoint_), std::string::npos) << message;
  }

  TemporaryFolder folder_;
  std::string checkpoint_ = write_checkpoint(folder_.path(), 1, 1, 1);
  std::string path_ = checkpoint_ + "/rank-00000.h5";
  Manifest manifest_ = read_manifest(checkpoint_);
};

// HDF5's library may die of such files.
TEST_F(Hostile, structure_of_which_any_byte_was_changed) {
  const std::string good = read_file(path_);
  std::mt19937 random(1);
  int64_t changed = 0;
  const auto stride = static_cast<size_t>(taken("Hostile.structure_of_which_any_byte_was_changed"));
  for (const auto& [begin, end] : structure_of(manifest_.files[0])) {
    for (size_t i = begin + random() % stride; i < end; i += stride) {
      poke(path_, i, {static_cast<char>(good[i] ^ static_cast<char>(1u << random() % 8))});
      forge_structure(checkpoint_, manifest_, 0);
      changed++;
      EXPECT_NE(told(), "") << "byte " << i;
      poke(path_, i, {good[i]});
    }
  }
  EXPECT_GT(changed, 500);
  forge_structure(checkpoint_, manifest_, 0);
  EXPECT_EQ(told(), "");
}

TEST_F(Hostile, structure_that_is_noise) {
  const std::string good = read_file(path_);
  std::mt19937 random(2);
  const int64_t rounds = taken("Hostile.structure_that_is_noise");
  for (int64_t round = 0; round < rounds; round++) {
    for (const auto& [begin, end] : structure_of(manifest_.files[0])) {
      const size_t from = begin + random() % (end - begin);
      std::string noise(std::min<size_t>(end - from, 1 + random() % 64), '\xff');
      for (char& c : noise)
        if (random() % 3) c = static_cast<char>(random());
      poke(path_, from, noise);
    }
    forge_structure(checkpoint_, manifest_, 0);
    EXPECT_EQ(told().empty(), read_file(path_) == good);
    poke(path_, 0, good);
  }
}

// Files that were made by hand for a reader of HDF5 to fail on, and the one they were made of. That has structure
// between its elements, as all had until November 24, 2026.
TEST_F(Hostile, crafted_structures) {
  const std::string crafted = MEGALITH_SOURCE_DIR "/tests/checkpoints/structures/";
  const FileRecord record = file_record_from_text(read_file(crafted + "record.json"));
  int refused = 0;
  for (const auto& entry : fs::directory_iterator(crafted)) {
    if (entry.path().extension() != ".h5") continue;
    const bool good = entry.path().stem() == "good";
    spill(path_, read_file(entry.path()));
    Manifest manifest = manifest_;
    manifest.files = {record};
    forge_structure(checkpoint_, manifest, 0);
    EXPECT_EQ(told().empty(), good) << entry.path() << ": " << told();
    refused += !good;
  }
  EXPECT_EQ(refused, 4);
}

// HDF5 looks for its beginning at 0, 512, 1024, ...: what lies before is a user's. So all that is structure is as it
// should be, and lies elsewhere.
TEST_F(Hostile, elements_before_the_structure) {
  const DatasetRecord& first = manifest_.files[0].datasets[0];
  const std::string good = read_file(path_);
  const auto begin = static_cast<size_t>(first.offset), bytes = static_cast<size_t>(first.bytes());
  spill(path_, good.substr(begin, bytes) + good.substr(0, begin) + good.substr(begin + bytes));
  manifest_.files[0].datasets[0].offset = 0;
  forge_manifest(checkpoint_, manifest_);
  expect_refused("at byte 0 is outside the file or overlaps another");
}

// The library itself adds them.
class HostileLinks : public Hostile, public ::testing::WithParamInterface<const char*> {};

TEST_P(HostileLinks, are_refused) {
  const std::string kind = GetParam();
  const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  ASSERT_GE(H5Ldelete(file, "scalar", H5P_DEFAULT), 0);
  if (kind == "soft") {
    ASSERT_GE(H5Lcreate_soft("/parameters/wte.weight", file, "scalar", H5P_DEFAULT, H5P_DEFAULT), 0);
  } else if (kind == "external") {
    ASSERT_GE(H5Lcreate_external("/etc/passwd", "/x", file, "scalar", H5P_DEFAULT, H5P_DEFAULT), 0);
  } else if (kind == "hard") {
    ASSERT_GE(H5Lcreate_hard(file, "/parameters/wte.weight", file, "scalar", H5P_DEFAULT, H5P_DEFAULT), 0);
  } else {
    const hsize_t length = 1;
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &length, nullptr);
    H5Pset_external(creation, "/etc/passwd", 0, 4);
    const hid_t dataset = H5Dcreate2(file, "scalar", H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    ASSERT_GE(dataset, 0);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Pclose(creation);
  }
  H5Fclose(file);
  fs::resize_file(path_, static_cast<uintmax_t>(manifest_.files[0].bytes));  // the library cuts off what was deleted
  forge_structure(checkpoint_, manifest_, 0);
  EXPECT_NE(told(), "");
  EXPECT_EQ(told().find(path_), 0u) << told();
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostileLinks, ::testing::Values("soft", "external", "hard", "elements_elsewhere"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_F(Hostile, groups_that_hold_themselves) {
  const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(H5Lcreate_hard(file, "/parameters", file, "/parameters/parameters", H5P_DEFAULT, H5P_DEFAULT), 0);
  H5Fclose(file);
  forge_structure(checkpoint_, manifest_, 0);
  EXPECT_NE(told(), "");
}

TEST_F(Hostile, a_dataset_that_the_manifest_does_not_list) {
  manifest_.files[0].datasets.pop_back();
  forge_structure(checkpoint_, manifest_, 0);
  expect_told("rank-00000.h5");
}

// A name of a few hundred groups, each of which takes HDF5 a kilobyte.
TEST_F(Hostile, names_that_ask_for_more_than_the_file_holds) {
  DatasetRecord& first = manifest_.files[0].datasets[0];
  std::string deep = "x";
  for (int i = 0; i < 400; i++) deep += "/x";
  first.shard.name = first.dataset = deep;
  forge_manifest(checkpoint_, manifest_);
  expect_told("HDF5 puts them at");
}

TEST_F(Hostile, manifests_that_cannot_be_true) {
  const std::string files = R"("files": [)", good = read_file(checkpoint_ + "/manifest.json");
  const std::string first = good.substr(good.find(files) + files.size());
  const auto expect = [&](const std::string& from, const std::string& to, const std::string& part) {
    spill(checkpoint_ + "/manifest.json", good);
    forge_manifest_text(checkpoint_, from, to);
    expect_refused(part);
  };
  expect(first, "]}", "lists no files");
  expect(R"("step": 1)", R"("step": -1)", "step -1");
  expect(R"("step": 1)", R"("step": 1.5)", "not a whole number");
  expect(R"("step": 1)", R"("step": 18446744073709551615)", "not a whole number");
  expect(R"("state": {)", R"("state": [)" + std::string(100000, '[') + "{", "nested more than");
  expect(R"("bytes": )", R"("bytes": -)", "outside the file");
  expect(R"("name": "rank-00000.h5")", R"("name": "rank\n00000.h5")", "is not a valid file name");
  expect(R"("name": "rank-00000.h5")", R"("name": "../rank-00000.h5")", "is not a valid file name");
  expect(R"("name": "rank-00000.h5")", R"("name": "\u0000")", "is not a valid file name");
  expect(R"("dataset":")", R"("dataset":"../)", "is not a valid name for a shard");
  expect(R"("dataset":"scalar)", R"("dataset":"scalar#1/../x)", "is not a valid name for a shard");
  expect(R"("elements":[0)", R"("elements":[-1)", "its elements are outside [0, ");
  expect(R"("shape":[)", R"("shape":[-)", "all must be positive");
  expect(R"("shape":[)", R"("shape":[0,)", "all must be positive");
  expect(R"("shape":[)", R"("shape":[1e300,)", "not a whole number");
  expect(R"("offset":)", R"("offset":-)", "outside the file");
}

// A tensor of 2^50 rows of which a column is stored has as many runs as rows: they are counted when a file is that
// large.
TEST_F(Hostile, files_that_are_said_to_be_huge) {
  for (DatasetRecord& d : manifest_.files[0].datasets)
    if (d.shard.name == "scalar") {
      d.shard = {"scalar", {int64_t{1} << 50, 2}, {0, 1}, {0, int64_t{1} << 50}};
      manifest_.files[0].datasets = {d};
      break;
    }
  manifest_.files[0].bytes = int64_t{1} << 53;
  forge_manifest(checkpoint_, manifest_);
  expect_refused("expected 9007199254740992");
  expect_told("expected 9007199254740992");
}

TEST_F(Hostile, a_checkpoint_under_the_name_of_another_step) {
  const std::string other = folder_ / "step-00000010";
  fs::copy(checkpoint_, other, fs::copy_options::recursive);
  for (const std::string& path : {other, other + "/", other + "/."}) {
    const std::string message = message_of([&] { CheckpointReader{path}; });
    EXPECT_NE(message.find("holds a checkpoint of step 1"), std::string::npos) << message;
  }
  EXPECT_EQ(CheckpointStore(folder_.path()).list().complete, std::vector{checkpoint_});
  // Under no step's name it may be kept.
  fs::rename(other, folder_ / "the-good-one");
  EXPECT_EQ(CheckpointReader(folder_ / "the-good-one").manifest().step, 1);
}

TEST_F(Hostile, what_is_no_plain_file) {
  fs::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_refused("rank-00000.h5 of the checkpoint is not a plain file");
  expect_told("rank-00000.h5");
  fs::remove(path_);
  fs::create_symlink("/dev/zero", path_);
  expect_refused("not a plain file");
  const std::string manifest = checkpoint_ + "/manifest.json";
  fs::remove(manifest);
  ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);
  expect_refused("manifest.json is not a plain file");
}

}  // namespace
}  // namespace megalith
