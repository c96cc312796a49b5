// Limits of a process: a control group of 300 MB, as of a container, of addresses and of the size of files. What does
// not fit is refused in words, what fits runs.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

// A group of its own with this limit, where this user may make one; else its folder is empty.
class LimitedGroup {
 public:
  explicit LimitedGroup(int64_t bytes) {
    for (const auto& [parent, file] :
         {std::pair{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, std::pair{"/sys/fs/cgroup", "memory.max"}}) {
      const std::string folder = fmt::format("{}/megalith-test-{}", parent, ::getpid());
      std::error_code no;
      if (!fs::exists(std::string(parent) + "/cgroup.procs", no) || !fs::create_directory(folder, no)) continue;
      folder_ = folder;
      if (std::ofstream(folder + "/" + file) << bytes << std::flush) return;
      leave();
    }
  }
  ~LimitedGroup() { leave(); }
  LimitedGroup(const LimitedGroup&) = delete;
  LimitedGroup& operator=(const LimitedGroup&) = delete;
  const std::string& folder() const { return folder_; }

 private:
  void leave() {
    if (!folder_.empty()) ::rmdir(folder_.c_str());
    folder_.clear();
  }
  std::string folder_;
};

TEST(MemoryLimit, of_a_container_is_known_before_memory_is_taken) {
  const LimitedGroup group(300'000'000);
  if (group.folder().empty()) GTEST_SKIP() << "this user may make no control group that limits memory";
  const Scratch scratch;
  write_file(scratch / "train.bin", std::string(100'000, '\1'));
  const auto config = [&](int layers, int hidden) {
    write_file(scratch / "config.toml",
               fmt::format("[model]\nlayers = {}\nhidden = {}\nheads = 4\nvocab = 300\ncontext = 32\n"
                           "[data]\ntrain = \"train.bin\"\n[batch]\nsequence_length = 32\nglobal_batch_size = 2\n"
                           "microbatch_size = 2\n[train]\nsteps = 3\n[run]\noutput = \"run\"\n",
                           layers, hidden));
  };
  const auto train = [&] {
    return run(megalith({"train", "config.toml"}), scratch.folder(), 120,
               "echo $$ > " + group.folder() + "/cgroup.procs");
  };
  config(8, 512);
  const Result refused = train();
  EXPECT_EQ(refused.status, 1) << refused.text();
  EXPECT_NE(refused.err.find("of which the control group /"), std::string::npos) << refused.text();
  EXPECT_NE(refused.err.find("its limit is 0.28 GiB"), std::string::npos) << refused.text();
  EXPECT_FALSE(fs::exists(scratch / "run"));
  config(2, 64);
  const Result fits = train();
  EXPECT_EQ(fits.status, 0) << fits.text();
}

const std::string small_run =
    "[model]\nlayers = 12\nhidden = 32\nheads = 2\nvocab = 300\ncontext = 32\n[data]\ntrain = \"train.bin\"\n"
    "[batch]\nglobal_batch_size = 4\n[train]\nsteps = 8\n[checkpoint]\nevery = 1\n[run]\noutput = \"run\"\n";

// HDF5 ends the process where it gets no memory, and a thread with a heap of its own maps a page for every small block
// where addresses are few. So either there is enough for every save, or the run does not begin. The many small tensors
// of twelve layers are many small blocks.
TEST(MemoryLimit, of_addresses_is_said_before_a_run_begins) {
  const Scratch scratch;
  write_file(scratch / "train.bin", std::string(100'000, '\1'));
  write_file(scratch / "config.toml", small_run);
  int64_t fails = 0, works = 1'000'000;  // KiB
  const auto train = [&](int64_t limit) {
    const Result result = run(megalith({"train", "config.toml", fmt::format("run.output=run-{}", limit)}),
                              scratch.folder(), 60, fmt::format("ulimit -v {}", limit));
    EXPECT_TRUE(result.status == 0 || count(result.out, "step 1/8") == 0) << limit << " KiB: " << result.text();
    return result;
  };
  ASSERT_EQ(train(works).status, 0);
  while (works - fails > 2000) {
    const int64_t limit = (works + fails) / 2;
    (train(limit).status == 0 ? works : fails) = limit;
  }
  for (int64_t below = 0; below < 16'000; below += 2000) {
    const Result refused = train(fails - below);
    EXPECT_EQ(refused.status, 1) << refused.text();
    EXPECT_EQ(count(refused.err, "the layout of a checkpoint by HDF5 (1 dataset) does not fit into memory"), 1u)
        << refused.text();
    EXPECT_EQ(count(refused.err, "(ulimit -v)"), 1u) << refused.text();
  }
}

// A last save that a limit of the process forbids is not waited for, since waiting does not change the limit.
TEST(FileSizeLimit, under_the_last_save_ends_the_run) {
  const Scratch scratch;
  write_file(scratch / "train.bin", std::string(100'000, '\1'));
  write_file(scratch / "config.toml", small_run);
  const Result result = run(megalith({"train", "config.toml", "train.steps=2", "checkpoint.every=0"}), scratch.folder(),
                            30, "ulimit -f 200");
  EXPECT_EQ(result.status, 1) << result.text();
  EXPECT_EQ(count(result.err, "raise it (ulimit -f)"), 1u) << result.text();
}

}  // namespace
}  // namespace megalith::e2e
