// Disks that are full and limits that are reached, for real: an Error with the numbers, the disk as before, and a
// process and an HDF5 library that go on.
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cstdlib>
#include <optional>

#include "tests/checkpoints/helpers.h"

namespace megalith {
namespace {

using namespace test;

// The largest file that this process may write, for a scope.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : action_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const struct rlimit limit { bytes, before_.rlim_max };
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, action_);
  }

 private:
  struct rlimit before_ {};
  sighandler_t action_;
};

const std::vector<float>& megabyte() {
  static const std::vector<float> data(262144, 1.5f);
  return data;
}
FileRecord write_megabyte(const std::string& folder) {
  const ShardToWrite stored{whole_tensor("t", {262144}), megabyte().data()};
  return RankFileWriter().write(folder, 0, {&stored, 1});
}

TEST(FullDisk, limit_on_the_size_of_a_file) {
  const TemporaryFolder folder;
  write_checkpoint(folder.path(), 1);
  for (int round = 0; round < 20; round++) {
    const std::string unfinished = CheckpointStore(folder.path()).begin(2);
    {
      const FileSizeLimit limit(65536);
      const std::string message = message_of([&] { write_megabyte(unfinished); });
      for (const char* part : {"rank-00000.h5", "65536", "ulimit -f"})
        EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
    }
    EXPECT_TRUE(fs::is_empty(unfinished));
    store_of(unfinished).remove(unfinished);
    EXPECT_EQ(CheckpointStore(folder.path()).usable().size(), 1u);
  }
  const std::string again = write_checkpoint(folder.path(), 2);
  EXPECT_TRUE(verify_checkpoint(again).damaged.empty());
}

// A limit that comes while HDF5 has a layout open, which it then cannot close.
void meet_a_limit_and_go_on(const std::string& folder) {
  std::optional<FileSizeLimit> limit;
  ShardToWrite stored{whole_tensor("t", {262144}), megabyte().data()};
  stored.show = [&limit, show = stored.show](int64_t begin, int64_t end, const auto& use) {
    if (!limit) limit.emplace(1000);
    show(begin, end, use);
  };
  const std::string message = message_of([&] {
    RankFileWriter().write(CheckpointStore(folder).begin(1), 0, {&stored, 1});
  });
  CHECK(limit && message.find("ulimit -f") != std::string::npos, "{}", message);
  limit.reset();
  CHECK(verify_checkpoint(write_checkpoint(folder, 2)).damaged.empty(), "the next one is damaged");
  std::exit(0);
}
TEST(FullDisk, a_limit_that_comes_in_a_save_lets_the_process_end) {
  const TemporaryFolder folder;
  testing::GTEST_FLAG(death_test_style) = "threadsafe";  // as a process that has not used the library
  EXPECT_EXIT(meet_a_limit_and_go_on(folder.path()), testing::ExitedWithCode(0), "");
}

TEST(FullDisk, a_small_file_system) {
  const TemporaryFolder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=512k") != 0)
    GTEST_SKIP() << "mounting a small file system needs root; the limits on file sizes above stand in for it";
  struct Unmount {
    const std::string& path;
    ~Unmount() { ::umount2(path.c_str(), MNT_DETACH); }
  } unmount{folder.path()};

  const std::string before = write_checkpoint(folder.path(), 1);
  struct statvfs at_first {
  }, afterwards{};
  ::statvfs(folder.path().c_str(), &at_first);
  for (int round = 0; round < 20; round++) {
    const std::string unfinished = CheckpointStore(folder.path()).begin(2);
    const std::string message = message_of([&] { write_megabyte(unfinished); });
    for (const char* part : {"rank-00000.h5", "No space left", "bytes wanted", "bytes are available", "keep fewer"})
      EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
    store_of(unfinished).remove(unfinished);
  }
  ::statvfs(folder.path().c_str(), &afterwards);
  EXPECT_EQ(afterwards.f_bfree, at_first.f_bfree);
  EXPECT_TRUE(verify_checkpoint(before).damaged.empty());
  EXPECT_TRUE(verify_checkpoint(write_checkpoint(folder.path(), 2)).damaged.empty());
}

}  // namespace
}  // namespace megalith
