// Which folders count as checkpoints, which are pruned, and that nothing complete is ever overwritten.
#include <array>
#include <cerrno>
#include <limits>

#include "kernels/system/file_calls.h"
#include "tests/checkpoints/helpers.h"

namespace megalith {
namespace {

using namespace test;

TEST(Directory, newest_first_by_number) {
  const TemporaryFolder folder;
  for (int64_t step : {5, 100000000, 20}) write_checkpoint(folder.path(), step);
  fs::create_directory(folder / "step-5");  // not how a checkpoint is named
  fs::create_directory(folder / "notes");
  EXPECT_EQ(CheckpointStore(folder.path()).usable(),
            (std::vector{folder / "step-100000000", folder / "step-00000020", folder / "step-00000005"}));
  EXPECT_TRUE(CheckpointStore(folder.path()).list().skipped.empty());
  EXPECT_TRUE(CheckpointStore(folder / "absent").usable().empty());
}

TEST(Directory, incomplete_ones_are_skipped_with_a_reason) {
  const TemporaryFolder folder;
  for (int64_t step = 1; step <= 6; step++) write_checkpoint(folder.path(), step);
  fs::remove(folder / "step-00000002/manifest.json");
  fs::remove(folder / "step-00000003/rank-00001.h5");
  fs::resize_file(folder / "step-00000004/rank-00000.h5", 100);
  fs::resize_file(folder / "step-00000005/manifest.json", fs::file_size(folder / "step-00000005/manifest.json") - 1);
  fs::rename(folder / "step-00000006", folder / "step-00000007");
  CheckpointStore(folder.path()).begin(8);
  spill(folder / "step-00000009", "a file");
  const CheckpointListing listing = CheckpointStore(folder.path()).list();
  EXPECT_EQ(listing.complete, (std::vector{folder / "step-00000001"}));
  const std::vector<std::string> reasons = {"not a folder",  "step 6",        "damaged",       "100 bytes",
                                            "rank-00001.h5", "manifest.json", "never finished"};
  ASSERT_EQ(listing.skipped.size(), reasons.size());
  for (size_t i = 0; i < reasons.size(); i++)
    EXPECT_NE(listing.skipped[i].reason.find(reasons[i]), std::string::npos) << listing.skipped[i].reason;
  for (const SkippedCheckpoint& s : listing.skipped)
    EXPECT_EQ(s.published, s.path != folder / ".step-00000008.partial");
  EXPECT_THROW(CheckpointReader(folder / "step-00000003"), Error);
}

TEST(Directory, pruning_keeps_the_newest_complete_ones) {
  const TemporaryFolder folder;
  for (int64_t step = 1; step <= 5; step++) write_checkpoint(folder.path(), step);
  fs::remove(folder / "step-00000005/rank-00000.h5");  // the newest is not complete, and does not count
  CheckpointStore(folder.path()).begin(6);
  EXPECT_EQ(CheckpointStore(folder.path()).prune(0).removed, (std::vector{folder / ".step-00000006.partial"}));
  EXPECT_EQ(CheckpointStore(folder.path()).prune(2).removed,
            (std::vector{folder / "step-00000002", folder / "step-00000001"}));
  EXPECT_EQ(CheckpointStore(folder.path()).usable(), (std::vector{folder / "step-00000004", folder / "step-00000003"}));
  EXPECT_TRUE(fs::exists(folder / "step-00000005"));
  EXPECT_TRUE(CheckpointStore(folder.path()).prune(2).removed.empty());
  EXPECT_EQ(CheckpointStore(folder.path()).prune(1).removed.size(), 1u);
  CheckpointReader reader(folder / "step-00000004");
  EXPECT_TRUE(reads_right(reader));
  EXPECT_THROW(CheckpointStore(folder.path()).prune(-1), Error);
  EXPECT_TRUE(CheckpointStore(folder / "absent").prune(1).removed.empty());
}

// Another reader has it open on a network's file system, or a file is immutable.
TEST(Directory, pruning_leaves_what_cannot_be_removed_to_the_next) {
  const TemporaryFolder folder;
  for (int64_t step = 1; step <= 4; step++) write_checkpoint(folder.path(), step);
  const std::string stuck = folder / ".step-00000002.removed";
  {
    const FileHook hook(
        [&](const FileEvent& e) { return FileFate{e.call == FileCall::remove && e.path == stuck ? EBUSY : 0}; });
    const Pruned pruned = CheckpointStore(folder.path()).prune(2);
    EXPECT_EQ(pruned.removed, (std::vector{folder / "step-00000001"}));
    EXPECT_EQ(pruned.failures, (std::vector{"cannot remove " + stuck + ": Device or resource busy"}));
  }
  EXPECT_EQ(CheckpointStore(folder.path()).usable(), (std::vector{folder / "step-00000004", folder / "step-00000003"}));
  EXPECT_EQ(CheckpointStore(folder.path()).prune(2).removed, (std::vector{stuck}));
  EXPECT_FALSE(fs::exists(stuck));
}

TEST(Directory, pruning_leaves_what_is_needed) {
  const TemporaryFolder folder;
  for (int64_t step = 1; step <= 5; step++) write_checkpoint(folder.path(), step);
  const auto needed = [](const std::set<int64_t>& steps) {
    EXPECT_EQ(steps, (std::set<int64_t>{1, 2, 3, 4, 5}));
    return std::set<int64_t>{2};
  };
  EXPECT_EQ(CheckpointStore(folder.path()).prune(2, needed).removed,
            (std::vector{folder / "step-00000003", folder / "step-00000001"}));
}

// The test tensors, one element of one of them not being finite.
std::string write_with(float value, const std::string& directory, int64_t step) {
  const std::string unfinished = CheckpointStore(directory).begin(step);
  std::vector<float> data(17 * 6, 1);
  data[40] = value;
  const std::array<ShardToWrite, 2> shards = {
      ShardToWrite{whole_tensor("parameters/wte.weight", {17, 6}), data.data()},
      ShardToWrite{whole_tensor("moments/second/wte.weight", {6}), data.data()}};
  const FileRecord record = file_record_from_text(to_text(RankFileWriter().write(unfinished, 0, shards)));
  return store_of(unfinished).publish(unfinished, {step, nlohmann::json::object(), {record}});
}

TEST(Directory, what_is_not_finite_is_said_and_of_no_use) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    const TemporaryFolder folder;
    write_checkpoint(folder.path(), 1);
    write_with(std::numeric_limits<float>::max(), folder.path(), 2);
    const std::string path = write_with(bad, folder.path(), 3);
    EXPECT_EQ(what_is_not_finite(read_manifest(path)), "1 value that is not finite, in parameters/wte.weight");
    const CheckpointListing listing = CheckpointStore(folder.path()).list();
    EXPECT_EQ(listing.complete, (std::vector{folder / "step-00000002", folder / "step-00000001"}));
    ASSERT_EQ(listing.skipped.size(), 1u);
    EXPECT_EQ(listing.skipped[0].reason, path + " holds 1 value that is not finite, in parameters/wte.weight");
    EXPECT_TRUE(listing.skipped[0].published);
    // It is whole and can be looked at; it is in nobody's way.
    EXPECT_TRUE(verify_checkpoint(path).damaged.empty());
    EXPECT_NE(describe_checkpoint(path).find("\nNOT FINITE: 1 value"), std::string::npos);
    EXPECT_EQ(CheckpointStore(folder.path()).prune(1).removed, (std::vector{folder / "step-00000001"}));
    EXPECT_EQ(write_with(1, folder.path(), 3), path);
    EXPECT_TRUE(fs::exists(path + ".damaged-1"));
  }
}

TEST(Directory, what_a_step_can_be_repeated_from) {
  const TemporaryFolder folder;
  for (int64_t step : {1, 2, 4, 5, 7}) write_checkpoint(folder.path(), step);
  write_with(std::numeric_limits<float>::infinity(), folder.path(), 3);
  EXPECT_EQ(set_aside(folder / "step-00000004", Aside::suspect), folder / "step-00000004.suspect-1");
  EXPECT_EQ(set_aside(folder / "step-00000005", Aside::suspect), folder / "step-00000005.suspect-1");
  set_aside(folder / "step-00000002");
  write_checkpoint(folder.path(), 4);
  fs::remove(folder / "step-00000005.suspect-1/rank-00000.h5");
  EXPECT_EQ(CheckpointStore(folder.path()).before(7),
            (std::vector{folder / "step-00000004", folder / "step-00000004.suspect-1", folder / "step-00000003",
                         folder / "step-00000001"}));
  EXPECT_EQ(CheckpointStore(folder.path()).before(4),
            (std::vector{folder / "step-00000003", folder / "step-00000001"}));
  EXPECT_TRUE(CheckpointStore(folder / "absent").before(7).empty());
}

TEST(Directory, a_removal_that_died_is_finished) {
  const TemporaryFolder folder;
  write_checkpoint(folder.path(), 1);
  fs::create_directory(folder / ".step-00000000.removed");
  CheckpointStore(folder.path()).prune(3);
  EXPECT_FALSE(fs::exists(folder / ".step-00000000.removed"));
  EXPECT_EQ(CheckpointStore(folder.path()).usable().size(), 1u);
}

TEST(Directory, a_complete_checkpoint_is_never_overwritten) {
  const TemporaryFolder folder;
  const std::string path = write_checkpoint(folder.path(), 1);
  const std::string before = read_file(path + "/rank-00000.h5");
  EXPECT_NE(message_of([&] { CheckpointStore(folder.path()).begin(1); }).find("not overwritten"), std::string::npos);

  // It appears between begin and publish.
  fs::rename(path, folder / "aside");
  const std::string unfinished = CheckpointStore(folder.path()).begin(1);
  const FileRecord record = write_rank(unfinished, 0, 1, 1);
  fs::rename(folder / "aside", path);
  EXPECT_THROW(store_of(unfinished).publish(unfinished, {1, nlohmann::json::object(), {record}}), Error);
  EXPECT_FALSE(fs::exists(unfinished));
  EXPECT_EQ(read_file(path + "/rank-00000.h5"), before);
}

TEST(Directory, a_damaged_one_in_the_way_is_put_aside) {
  const TemporaryFolder folder;
  for (int k = 1; k <= 2; k++) {
    const std::string path = write_checkpoint(folder.path(), 1);
    spill(path + "/manifest.json", fmt::format("damage {}", k));
  }
  write_checkpoint(folder.path(), 1);
  EXPECT_EQ(read_file(folder / "step-00000001.damaged-1/manifest.json"), "damage 1");
  EXPECT_EQ(read_file(folder / "step-00000001.damaged-2/manifest.json"), "damage 2");
  EXPECT_EQ(CheckpointStore(folder.path()).usable().size(), 1u);
}

TEST(Directory, a_link_to_nothing_in_the_way_is_put_aside) {
  const TemporaryFolder folder;
  fs::create_symlink("nowhere", CheckpointStore(folder.path()).path_of(1));
  write_checkpoint(folder.path(), 1);
  EXPECT_EQ(CheckpointStore(folder.path()).usable().size(), 1u);
  EXPECT_EQ(fs::read_symlink(folder / "step-00000001.damaged-1"), "nowhere");
}

TEST(Directory, leftovers_of_the_same_step_are_removed) {
  const TemporaryFolder folder;
  const std::string first = CheckpointStore(folder.path()).begin(1);
  write_rank(first, 3, 1, 7);
  spill(first + "/rank-00000.h5.partial", "half");
  EXPECT_EQ(CheckpointStore(folder.path()).begin(1), first);
  EXPECT_TRUE(fs::is_empty(first));
  store_of(first).remove(first);
  store_of(first).remove(first);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Directory, publishing_needs_every_file) {
  const TemporaryFolder folder;
  const std::string path = CheckpointStore(folder.path()).begin(1);
  const FileRecord a = write_rank(path, 0, 1, 2), b = write_rank(path, 1, 1, 2);
  fs::remove(path + "/" + b.name);
  EXPECT_NE(message_of([&] {
              store_of(path).publish(path, {1, nlohmann::json::object(), {a, b}});
            }).find(b.name),
            std::string::npos);
  EXPECT_TRUE(CheckpointStore(folder.path()).usable().empty());
}

TEST(Directory, a_folder_that_cannot_be_written_is_named) {
  const TemporaryFolder folder;
  spill(folder / "file", "");
  const std::string message = message_of([&] { CheckpointStore(folder / "file/checkpoints").begin(1); });
  EXPECT_NE(message.find(folder / "file/checkpoints"), std::string::npos) << message;
  EXPECT_NE(message_of([&] { write_rank(folder / "absent", 0, 1, 1); }).find("absent"), std::string::npos);
}

}  // namespace
}  // namespace megalith
