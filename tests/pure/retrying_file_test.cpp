// A disk that is full for a while under a file of lines: nothing ends, every line is written later, in its place, or
// counted; and the same under a run's metrics and its log.
#include "trainer/log/retrying_file.h"

#include <cerrno>
#include <filesystem>
#include <optional>

#include "checkpoints/store.h"
#include "kernels/system/file_calls.h"
#include "tests/data/scratch.h"
#include "trainer/log/log.h"
#include "trainer/session/file_session.h"
#include "trainer/train/run.h"

namespace megalith {
namespace {

class RetryingLines : public testing::Test {
 protected:
  RetryingFile::Warn tell() {
    return [this](const std::string& trouble) { told_.push_back(trouble); };
  }
  // Calls that find the disk full write a part.
  FileFate fate(const FileEvent& e) const {
    if (e.path != path_) return {};
    if (half_stays_ && e.call == FileCall::resize) return {EIO};
    return full_ && e.call == *full_ ? FileFate{ENOSPC, e.bytes / 2} : FileFate{};
  }

  test::Scratch scratch_;
  std::string path_ = scratch_.path("lines");
  std::vector<std::string> told_;
  std::optional<FileCall> full_;
  bool half_stays_ = false;
  FileHook hook_{[this](const FileEvent& e) { return fate(e); }};
};

TEST_F(RetryingLines, WaitAndAreWrittenInTheirPlace) {
  RetryingFile file(path_, true, tell());
  file.append("one\n");
  full_ = FileCall::write;
  for (const char* line : {"two\n", "three\n", "four\n"}) file.append(line);
  file.sync();
  EXPECT_EQ(read_file(path_), "one\n") << "half a line stays";
  ASSERT_EQ(told_.size(), 1u) << "once";
  EXPECT_NE(told_[0].find("lines (2 of 4 bytes at 4 done): No space left on device"), std::string::npos) << told_[0];
  full_.reset();
  file.append("five\n");
  EXPECT_EQ(read_file(path_), "one\ntwo\nthree\nfour\nfive\n");
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_NE(told_[1].find("works again: 4 buffered lines written, 0 lost"), std::string::npos) << told_[1];
}

TEST_F(RetryingLines, BeyondTheBoundAreCounted) {
  const std::string line = std::string(1 << 20, 'x') + "\n";
  RetryingFile file(path_, true, tell());
  full_ = FileCall::write;
  for (int i = 0; i < 6; i++) file.append(line);
  full_.reset();
  file.append("last\n");
  EXPECT_EQ(read_file(path_), line + line + line + "last\n");
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_NE(told_[1].find("4 buffered lines written, 3 lost"), std::string::npos) << told_[1];
}

TEST_F(RetryingLines, AnEndWhileTheDiskIsFullIsTold) {
  {
    RetryingFile file(path_, true, tell());
    full_ = FileCall::write;
    file.append("one\n");
    file.append("two\n");
  }
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_NE(told_[1].find("2 lines of "), std::string::npos) << told_[1];
  full_.reset();
  { const RetryingFile file(path_, true, tell()); }
  EXPECT_EQ(read_file(path_), "");
}

TEST_F(RetryingLines, AFlushMayFindTheDiskFull) {
  RetryingFile file(path_, true, tell());
  file.append("one\n");
  full_ = FileCall::sync;
  file.sync();
  file.append("two\n");
  ASSERT_EQ(told_.size(), 1u);
  full_.reset();
  file.sync();
  EXPECT_EQ(read_file(path_), "one\ntwo\n");
  EXPECT_EQ(told_.size(), 2u);
}

TEST_F(RetryingLines, GoOnBehindALineThatWasCutShort) {
  scratch_.write("lines", "one\ntw");
  RetryingFile(path_, true, tell()).append("three\n");
  EXPECT_EQ(read_file(path_), "one\ntw\nthree\n");
  RetryingFile(path_, false, tell()).append("four\n");
  EXPECT_EQ(read_file(path_), "one\ntw\nthree\nfour\n");
}

// As a watchdog does in another process, whether or not the disk is full meanwhile.
TEST_F(RetryingLines, LeaveWhatOthersAppend) {
  const auto another = [&](const char* line) { File(path_, File::Use::append).append(line); };
  RetryingFile file(path_, true, tell());
  file.append("one\n");
  another("a longer line of another\n");
  file.append("two\n");
  EXPECT_EQ(read_file(path_), "one\na longer line of another\ntwo\n");
  full_ = FileCall::write;
  file.append("three\n");
  full_.reset();
  another("again\n");
  full_ = FileCall::write;
  file.append("four\n");
  EXPECT_EQ(read_file(path_), "one\na longer line of another\ntwo\nagain\n") << "half a line stays";
  full_.reset();
  file.append("five\n");
  EXPECT_EQ(read_file(path_), "one\na longer line of another\ntwo\nagain\nthree\nfour\nfive\n");
}

TEST_F(RetryingLines, AreWrittenOverAHalfThatCouldNotBeRemoved) {
  RetryingFile file(path_, true, tell());
  file.append("one\n");
  full_ = FileCall::write;
  half_stays_ = true;
  file.append("three\n");
  EXPECT_EQ(read_file(path_), "one\nthr");
  full_.reset();
  half_stays_ = false;
  file.append("four\n");
  EXPECT_EQ(read_file(path_), "one\nthree\nfour\n");
}

TEST_F(RetryingLines, AreThereAgainWhereTheirFileIsRemoved) {
  const std::string folder = scratch_.path("folder"), path = folder + "/lines";
  make_folders(folder, "");
  RetryingFile file(path, true, tell());
  file.append("one\n");
  EXPECT_EQ(file.sync(), "");
  for (const std::string& removed : {path, folder}) {
    std::filesystem::remove_all(removed);
    file.append("more\n");
    EXPECT_EQ(file.sync(), path + " was removed during this run, and was created again with its content");
    EXPECT_EQ(file.sync(), "");
  }
  file.append("last\n");
  EXPECT_EQ(read_file(path), "one\nmore\nmore\nlast\n");
  EXPECT_TRUE(told_.empty());
}

TEST_F(RetryingLines, GoOnBehindAnotherFileOfTheirName) {
  RetryingFile file(path_, true, tell());
  file.append("one\n");
  std::filesystem::rename(path_, path_ + ".old");
  scratch_.write("lines", "new\n");
  file.append("two\n");
  EXPECT_NE(file.sync().find("lines was replaced by another file"), std::string::npos);
  file.append("three\n");
  EXPECT_EQ(read_file(path_), "new\nthree\n");
  EXPECT_EQ(read_file(path_ + ".old"), "one\ntwo\n");
}

// In the middle of ten steps, metrics, log and trace cannot be written; checkpoints can.
TEST(FullDiskUnderARun, LosesNoLineAndEndsNothing) {
  const test::Scratch scratch;
  scratch.write("train.bin", std::string(4000, '\1'));
  const std::string run = scratch.path("run");
  const Config config =
      parse_config(fmt::format("[model]\nlayers = 1\nhidden = 8\nheads = 1\nvocab = 300\ncontext = 8\n"
                               "[batch]\nglobal_batch_size = 2\nmicrobatch_size = 2\n[data]\ntrain = \"{}\"\n"
                               "[train]\nsteps = 10\nlog_every = 1\ntrace_steps = \"3-4\"\n[checkpoint]\nevery = "
                               "2\nkeep = 2\nsettle = 0\n[run]\noutput = \"{}\"\n",
                               scratch.path("train.bin"), run),
                   "test", {});
  int64_t writes = 0, refused = 0;
  {
    const FileHook hook([&](const FileEvent& e) -> FileFate {
      if (e.path.starts_with(run + "/trace-") && e.call == FileCall::write) return {ENOSPC, e.bytes / 3};
      const bool ours = e.path == run + "/metrics.jsonl" || e.path == run + "/log.txt";
      if (!ours || e.call != FileCall::write || ++writes < 12 || writes > 24) return {};
      refused++;
      return {ENOSPC, e.bytes / 3};
    });
    const FileSession session("", {}, 1);
    megalith::Run(config, session).train();
    log_to_console();
  }
  EXPECT_GT(refused, 5);
  EXPECT_EQ(CheckpointStore(run + "/checkpoints").usable().size(), 2u);
  const std::string metrics = read_file(run + "/metrics.jsonl"), log = read_file(run + "/log.txt");
  size_t at = 0;
  for (int step = 1; step <= 10; step++) {
    const size_t found = metrics.find(fmt::format("{{\"step\":{},", step), at);
    ASSERT_NE(found, std::string::npos) << step << " in " << metrics;
    at = found;
    EXPECT_NE(log.find(fmt::format("step {}/10", step)), std::string::npos) << step << " in " << log;
  }
  EXPECT_NE(log.find("No space left on device"), std::string::npos) << log;
  EXPECT_NE(log.find("metrics.jsonl works again"), std::string::npos) << log;
  EXPECT_NE(log.find("no trace of steps 3-4: cannot write " + run + "/trace-3-4.json"), std::string::npos) << log;
  for (const auto& entry : std::filesystem::directory_iterator(run))
    EXPECT_FALSE(entry.path().filename().string().starts_with("trace-")) << entry.path();
}

}  // namespace
}  // namespace megalith
