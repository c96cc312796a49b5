// What is left of the memory under control groups of both kinds, from files as a kernel shows them.
#include "trainer/machine/available_memory.h"

#include "tests/data/scratch.h"
#include "trainer/job/memory_check.h"
#include "trainer/machine/machine.h"

namespace megalith {
namespace {

class Room : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) const { root_.write(path, text); }
  void put_v2(const std::string& folder, const std::string& limit, int64_t used, int64_t cached = 0) const {
    put(folder + "/memory.max", limit + "\n");
    put(folder + "/memory.current", std::to_string(used) + "\n");
    put(folder + "/memory.stat",
        fmt::format("anon {}\nfile 1\ninactive_file {}\nactive_file {}\n", used, cached / 2, cached - cached / 2));
  }
  AvailableMemory room() const { return available_memory(root_.path("")); }

  test::Scratch root_;
};

TEST_F(Room, WithoutGroupsItIsTheMachinesLessItsHugePages) {
  EXPECT_EQ(room().bytes, physical_memory());
  EXPECT_EQ(room().group, "");
  put("proc/meminfo",
      "MemTotal:       9 kB\nHugePages_Total:       3\nHugePages_Free:        1\nHugepagesize:       2048 kB\n");
  EXPECT_EQ(room().bytes, physical_memory() - 6 * MiB);
}

TEST_F(Room, TheSmallestOfNestedGroupsCountsAndWhatIsUsedInIt) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  put_v2("sys/fs/cgroup/a/b", "max", 100 * MiB);
  EXPECT_EQ(room().group, "") << "no limit anywhere";
  put_v2("sys/fs/cgroup/a", std::to_string(300 * MiB), 120 * MiB, 20 * MiB);
  EXPECT_EQ(room().bytes, 200 * MiB) << "caches are given back";
  EXPECT_EQ(room().group, "/a");
  EXPECT_EQ(room().limit, 300 * MiB);
  put_v2("sys/fs/cgroup/a/b", std::to_string(250 * MiB), 100 * MiB);
  EXPECT_EQ(room().bytes, 150 * MiB);
  EXPECT_EQ(room().group, "/a/b");
  put_v2("sys/fs/cgroup/a/b", std::to_string(50 * MiB), 100 * MiB);
  EXPECT_EQ(room().bytes, 0) << "over it already";
}

TEST_F(Room, AContainerSeesItsOwnGroupAtTheMount) {
  put("proc/self/cgroup", "0::/\n");
  put("proc/self/mountinfo", "1 2 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  put_v2("sys/fs/cgroup", std::to_string(300 * MiB), 10 * MiB);
  EXPECT_EQ(room().bytes, 290 * MiB);
  EXPECT_EQ(room().group, "/");
}

// Version 1: other hierarchies beside it, a mount that begins with the container's group, a space in a name.
TEST_F(Room, OfVersionOneTheMemoryControllerCounts) {
  put("proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/docker/a b/inner\n1:cpu:/x\n0::/\n");
  put("proc/self/mountinfo",
      "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
      "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
      "35 31 0:32 /docker/a\\040b /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpu,memory\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(300 * MiB));
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(100 * MiB));
  put("sys/fs/cgroup/memory/memory.stat",
      fmt::format("inactive_file 5\ntotal_inactive_file {}\ntotal_active_file {}\n", 10 * MiB, 20 * MiB));
  put("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "9223372036854771712");
  put("sys/fs/cgroup/memory/inner/memory.usage_in_bytes", "1");
  EXPECT_EQ(room().bytes, 230 * MiB);
  EXPECT_EQ(room().limit, 300 * MiB);
  put("sys/fs/cgroup/cpuset/memory.limit_in_bytes", "1");
  EXPECT_EQ(room().bytes, 230 * MiB);
}

TEST_F(Room, ARunThatDoesNotFitInItsGroupIsRefused) {
  MemorySizes sizes;
  sizes.at(MemoryClass::saved, MemoryPlace::device) = 100 * MiB;
  const AvailableMemory room{.bytes = 250 * MiB, .group = "/docker/1f", .limit = 300 * MiB};
  check_node_memory({{World::cpu, sizes}}, 2, room);
  EXPECT_ERROR(check_node_memory({{World::cpu, sizes}}, 3, room), "0.10 GiB on each of 3 ranks",
               "the control group /docker/1f has 0.24 GiB left: its limit is 0.29 GiB", "docker run --memory");
}

}  // namespace
}  // namespace megalith
