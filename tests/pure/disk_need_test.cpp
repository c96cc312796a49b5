// A run says before it starts what it needs of its disk.
#include "trainer/checkpointing/disk_need.h"

#include <gtest/gtest.h>

namespace megalith {
namespace {

constexpr int64_t gib = int64_t{1} << 30;

Config config(int64_t keep, int64_t every) {
  Config c;
  c.train.steps = 1000;
  c.checkpoint.directory = "there";
  c.checkpoint.keep = keep;
  c.checkpoint.every = every;
  c.checkpoint.minutes = 0;
  return c;
}

TEST(DiskNeed, CountsWhatIsKeptAtOnce) {
  Config c = config(3, 10);
  EXPECT_EQ(disk_need(c, gib, 0, 0, 6 * gib).words,
            "disk: a checkpoint takes 1 GiB; with checkpoint.keep = 3 there are up to 6 at once; 6 more take 6 GiB, "
            "and there has 6 GiB free");
  EXPECT_TRUE(disk_need(c, gib, 0, 0, 6 * gib).fits);
  EXPECT_FALSE(disk_need(c, gib, 0, 0, 6 * gib - 1).fits);
  EXPECT_TRUE(disk_need(c, gib, 0, 4, 2 * gib).fits) << "four are there";
  EXPECT_FALSE(disk_need(c, gib, 0, 10, gib - 1).fits) << "one is written before another goes";
  c.checkpoint.settle = 0;
  EXPECT_TRUE(disk_need(c, gib, 0, 0, 4 * gib).fits);
  c.checkpoint.keep_every = 500;
  EXPECT_FALSE(disk_need(c, gib, 0, 0, 6 * gib - 1).fits);
  EXPECT_TRUE(disk_need(c, gib, 500, 0, 5 * gib).fits) << "one of the two is behind it";
  c.checkpoint.keep_best = true;
  EXPECT_FALSE(disk_need(c, gib, 500, 0, 6 * gib - 1).fits) << "the best one is another";
}

TEST(DiskNeed, CountsAllWhereAllAreKept) {
  Config c = config(0, 100);
  EXPECT_TRUE(disk_need(c, gib, 0, 0, 10 * gib).fits);
  EXPECT_FALSE(disk_need(c, gib, 0, 3, 10 * gib - 1).fits);
  EXPECT_TRUE(disk_need(c, gib, 900, 9, gib).fits);
  c.checkpoint.keep_best = true;
  c.train.evaluate_every = 250;
  EXPECT_FALSE(disk_need(c, gib, 0, 0, 13 * gib - 1).fits) << "each of three evaluations may find the best so far";
  c.checkpoint.keep_best = false;
  c.checkpoint.every = 0;
  c.checkpoint.minutes = 30;
  EXPECT_EQ(disk_need(c, gib / 2, 0, 0, 2048 * gib).words,
            "disk: a checkpoint takes 512 MiB; all are kept (checkpoint.keep = 0), by checkpoint.minutes = 30 up to 24 "
            "GiB a day; another takes 512 MiB, and there has 2 TiB free");
}

}  // namespace
}  // namespace megalith
