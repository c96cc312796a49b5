// kill -9 at random moments: what is listed is whole, and what was published stays.
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <random>

#include "tests/checkpoints/helpers.h"

namespace megalith {
namespace {

using namespace test;

const std::vector<int64_t> saved_shape = {64, 1001};

std::vector<float> values_at(int64_t step) {
  std::vector<float> data(static_cast<size_t>(whole_tensor("t", saved_shape).numel()));
  for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<float>(i) + static_cast<float>(step) * 0.5f;
  return data;
}

void save(const std::string& directory, int64_t step) {
  const std::vector<float> data = values_at(step);
  const std::string folder = CheckpointStore(directory).begin(step);
  Manifest manifest{step, {{"samples", step}}, {}};
  for (int rank = 0; rank < 3; rank++) {
    TensorShard p = whole_tensor("parameters/t", saved_shape);
    p.elements.begin = p.numel() * rank / 3;
    p.elements.end = whole_tensor("t", saved_shape).numel() * (rank + 1) / 3;
    const ShardToWrite stored{p, data.data() + p.elements.begin};
    manifest.files.push_back(RankFileWriter().write(folder, rank, {&stored, 1}));
  }
  store_of(folder).publish(folder, manifest);
}

// Saves step after step, as a trainer that keeps two would, and says after each that it is safe.
[[noreturn]] void save_for_ever(const std::string& directory, int64_t step, int out) {
  try {
    for (;; step++) {
      save(directory, step);
      if (::write(out, &step, sizeof step) != sizeof step) ::_exit(2);
      CheckpointStore(directory).prune(2);
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    ::_exit(1);
  }
}

TEST(Kill, no_complete_checkpoint_is_lost) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  int64_t safe = 1;
  int during_a_save = 0;
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 40; round++) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_for_ever(folder.path(), safe + 1, pipe[1]);
    ::close(pipe[1]);
    ::usleep(random() % 25000);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the child failed by itself";
    for (int64_t step = 0; ::read(pipe[0], &step, sizeof step) == sizeof step;) safe = step;
    ::close(pipe[0]);

    const CheckpointListing listing = CheckpointStore(folder.path()).list();
    ASSERT_FALSE(listing.complete.empty());
    for (const SkippedCheckpoint& s : listing.skipped) {
      EXPECT_NE(s.path.find(".partial"), std::string::npos) << s.reason;
      during_a_save++;
    }
    for (const std::string& path : listing.complete) {
      const VerifyReport report = verify_checkpoint(path);
      ASSERT_TRUE(report.damaged.empty()) << report.damaged[0];
      CheckpointReader reader(path);
      const std::vector<float> expected = values_at(reader.manifest().step);
      std::vector<float> out(expected.size());
      reader.read(whole_tensor("parameters/t", saved_shape), out.data());
      ASSERT_TRUE(out == expected) << path;
    }
    const int64_t newest = CheckpointReader(listing.complete[0]).manifest().step;
    ASSERT_GE(newest, safe);  // it may have been published and not yet said so
    ASSERT_LE(newest, safe + 1);
    safe = newest;
  }
  RecordProperty("kills_during_a_save", during_a_save);
  EXPECT_GT(during_a_save, 0) << "no kill fell into a save: the delays prove nothing on this machine";
  CheckpointStore(folder.path()).prune(1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace megalith
