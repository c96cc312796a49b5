// The calls to the system of which a checkpoint is made: their order, and what becomes of the disk when any one of them
// is the last, fails, or writes a part only.
#include <sys/wait.h>

#include <cerrno>
#include <set>

#include "checkpoints/safetensors.h"
#include "kernels/system/file_calls.h"
#include "tests/checkpoints/helpers.h"
#include "tests/recorded_files.h"

namespace megalith {
namespace {

using namespace test;

// As a trainer that keeps one checkpoint.
void save_step(const std::string& directory, int64_t step) {
  const std::string folder = CheckpointStore(directory).begin(step);
  try {
    Manifest manifest{step, {{"samples", step}}, {}};
    for (int rank = 0; rank < 2; rank++) manifest.files.push_back(write_rank(folder, rank, 1, 2));
    store_of(folder).publish(folder, manifest);
  } catch (const Error&) {
    store_of(folder).remove(folder);
    throw;
  }
  CheckpointStore(directory).prune(1);
}

TEST(FileCalls, of_a_save_come_in_their_order) {
  const TemporaryFolder folder;
  save_step(folder.path(), 1);
  const test::RecordedFiles recorded;
  save_step(folder.path(), 2);
  EXPECT_EQ(test::order_fault(recorded.events()), "");

  const std::string aside = ".step-00000002.partial", rank0 = aside + "/rank-00000.h5",
                    rank1 = aside + "/rank-00001.h5", manifest = aside + "/manifest.json";
  std::vector<std::string> expected = {"make " + aside, "flush folder ."};
  for (const std::string& file : {rank0, rank1, manifest})
    for (const std::string& call :
         {"create " + file + ".partial", "write " + file + ".partial", "flush " + file + ".partial",
          "rename " + file + ".partial to " + file, "flush folder " + aside})
      expected.push_back(call);
  for (const char* call :
       {"rename .step-00000002.partial to step-00000002", "flush folder .",
        "rename step-00000001 to .step-00000001.removed", "flush folder .", "remove .step-00000001.removed"})
    expected.push_back(call);

  const std::map<FileCall, std::string> words = {
      {FileCall::create, "create "},           {FileCall::write, "write "},   {FileCall::sync, "flush "},
      {FileCall::rename, "rename "},           {FileCall::remove, "remove "}, {FileCall::make_folder, "make "},
      {FileCall::sync_folder, "flush folder "}};
  const auto name = [&](const std::string& path) {
    return path == folder.path() ? "." : path.substr(std::min(path.size(), folder.path().size() + 1));
  };
  std::vector<std::string> calls;
  for (const FileEvent& e : recorded.events()) {
    if (!words.contains(e.call) || (e.call == FileCall::remove && e.path.ends_with(".partial"))) continue;
    const std::string call = words.at(e.call) + name(e.path) + (e.to.empty() ? "" : " to " + name(e.to));
    if (calls.empty() || calls.back() != call) calls.push_back(call);  // a file is written in many shards
  }
  EXPECT_EQ(calls, expected);
}

// Whole checkpoints only, and at least one of them.
void expect_whole(const std::string& directory) {
  const std::vector<std::string> complete = CheckpointStore(directory).usable();
  EXPECT_FALSE(complete.empty());
  for (const std::string& path : complete) {
    EXPECT_EQ(verify_checkpoint(path).damaged, std::vector<std::string>());
    CheckpointReader reader(path);
    EXPECT_TRUE(reads_right(reader, 2, 1)) << path;
  }
}

// Saves on top of a checkpoint, with call number `n` going as `fate` says. False when there is no such call.
bool save_with(int n, const std::string& directory, const std::function<FileFate(const FileEvent&)>& fate) {
  int calls = 0;
  const FileHook hook(
      [&](const FileEvent& e) { return e.call != FileCall::open && calls++ == n ? fate(e) : FileFate{}; });
  save_step(directory, 2);
  return calls > n;
}

TEST(FileCalls, a_full_disk_at_any_of_them_leaves_the_checkpoint_before) {
  for (const bool torn : {false, true})
    for (int n = 0;; n++) {
      SCOPED_TRACE(fmt::format("call {}, {}", n, torn ? "torn" : "refused"));
      const TemporaryFolder folder;
      save_step(folder.path(), 1);
      std::string refused;
      FileCall call{};
      bool tidies_up = false;
      const auto full = [&](const FileEvent& e) {
        refused = e.path;
        call = e.call;
        tidies_up = fs::exists(CheckpointStore(folder.path()).path_of(2));
        return FileFate{ENOSPC, torn ? e.bytes / 2 : 0};
      };
      bool saved = false;
      try {
        if (!save_with(n, folder.path(), full)) break;
        saved = true;
        EXPECT_TRUE(call == FileCall::remove || tidies_up) << "nothing else can be done without";
      } catch (const Error& e) {
        const std::string message = e.what();
        EXPECT_NE(message.find(refused), std::string::npos) << message;
        EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
      }
      expect_whole(folder.path());
      const bool published = fs::exists(CheckpointStore(folder.path()).path_of(2));
      EXPECT_TRUE(published || fs::exists(CheckpointStore(folder.path()).path_of(1)));
      EXPECT_TRUE(published || !saved);
      save_step(folder.path(), published ? 3 : 2);
      expect_whole(folder.path());
      EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "something is left behind";
    }
}

TEST(FileCalls, a_death_at_any_of_them_leaves_a_whole_checkpoint) {
  for (int n = 0;; n++) {
    SCOPED_TRACE(n);
    const TemporaryFolder folder;
    save_step(folder.path(), 1);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool dies = false;
      const FileHook hook([&, calls = 0](const FileEvent& e) mutable {
        if (dies) ::_exit(1);
        dies = calls++ == n;
        return dies && e.call == FileCall::write ? FileFate{0, e.bytes / 2} : FileFate{};
      });
      save_step(folder.path(), 2);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    expect_whole(folder.path());
    if (WEXITSTATUS(status) == 0) break;
    save_step(folder.path(), 3);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "something is left behind";
  }
}

TEST(FileCalls, a_write_may_be_short) {
  const TemporaryFolder folder;
  const FileHook hook([](const FileEvent& e) { return FileFate{0, (e.bytes + 1) / 2}; });
  save_step(folder.path(), 1);
  expect_whole(folder.path());
}

// There the writes themselves find the end of the disk.
TEST(FileCalls, a_file_system_need_not_reserve) {
  const TemporaryFolder folder;
  for (const int error : {EOPNOTSUPP, ENOSYS, EINVAL}) {
    const FileHook hook([&](const FileEvent& e) { return FileFate{e.call == FileCall::reserve ? error : 0}; });
    save_step(folder.path(), error);
  }
  expect_whole(folder.path());
}

// Some network file systems refuse to sync a folder just so.
TEST(FileCalls, a_folder_that_cannot_be_flushed_is_no_error) {
  EXPECT_NO_THROW(sync_folder("/proc"));
  EXPECT_NE(message_of([] { sync_folder("/proc/none"); }).find("/proc/none to the disk: No such file"),
            std::string::npos);
}

TEST(FileCalls, an_export_leaves_nothing_at_any_of_them) {
  const std::vector<float> data(1000, 1.5f);
  for (int n = 0;; n++) {
    const TemporaryFolder folder;
    int calls = 0;
    const FileHook hook([&](const FileEvent& e) {
      return e.call != FileCall::remove && calls++ == n ? FileFate{ENOSPC, e.bytes / 2} : FileFate{};
    });
    try {
      SafeTensorsWriter writer(folder / "model.safetensors", {{"t", {1000}}});
      writer.append(data.data(), 1000);
      writer.finish();
      break;
    } catch (const Error&) {
      EXPECT_TRUE(fs::is_empty(folder.path())) << n;
    }
  }
}

}  // namespace
}  // namespace megalith
