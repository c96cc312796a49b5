// Checkpoints in daily use: how many stay, what a full disk and damage do, and the commands that look at them.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <filesystem>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

void prepare_tiny(const Scratch& scratch) {
  write_reference_config(scratch / "config.toml", reference("tiny"), reference("tiny"));
}

TEST(Checkpoint, keep_retains_the_newest) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_tiny(scratch);
  const auto names = [](std::initializer_list<int64_t> steps) {
    std::vector<std::string> all;
    for (int64_t step : steps) all.push_back(step_name(step));
    return all;
  };
  train(scratch.folder(), 2, {"run.output=all", "checkpoint.every=3"});
  EXPECT_EQ(checkpoints_in(scratch / "all/checkpoints"), names({3, 6, 8}));
  train(
      scratch.folder(), 2,
      {"run.output=two", "checkpoint.every=1", "checkpoint.keep=2", "checkpoint.keep_every=3", "checkpoint.settle=0"});
  EXPECT_EQ(checkpoints_in(scratch / "two/checkpoints"), names({3, 6, 7, 8}));
  train(scratch.folder(), 2,
        {"run.output=one", "checkpoint.every=2", "checkpoint.keep=1", "train.steps=7", "checkpoint.settle=0"});
  EXPECT_EQ(checkpoints_in(scratch / "one/checkpoints"), names({7}));
  // Beside the newest, the one that three stable steps have followed and the next that they will.
  train(scratch.folder(), 2, {"run.output=settles", "checkpoint.every=1", "checkpoint.keep=1", "checkpoint.settle=3"});
  EXPECT_EQ(checkpoints_in(scratch / "settles/checkpoints"), names({5, 7, 8}));
  train(scratch.folder(), 2, {"run.output=last"});
  EXPECT_EQ(checkpoints_in(scratch / "last/checkpoints"), names({8}));
  train(scratch.folder(), 2, {"run.output=elsewhere", "checkpoint.directory=folder/of/mine"});
  EXPECT_EQ(checkpoints_in(scratch / "folder/of/mine"), names({8}));
  for (const auto& folder : {"all", "two", "one", "last"})
    for (const auto& entry : fs::directory_iterator(scratch / folder + std::string("/checkpoints")))
      EXPECT_TRUE(entry.path().filename().string().starts_with("step-") || entry.path().filename() == "lock")
          << entry.path();
}

TEST(Checkpoint, inspect_verify_and_export) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_tiny(scratch);
  train(scratch.folder(), 3, {});
  const std::string checkpoint = "run/checkpoints/step-00000008";
  const Result inspected = run(megalith({"checkpoint", "inspect", checkpoint, "--all"}), scratch.folder());
  EXPECT_EQ(inspected.status, 0) << inspected.text();
  for (const char* word : {"step 8", "3 files", "\"layers\": 2", "\"sequences\": 64", "\n  layers = 2 ",
                           "parameters/wte.weight", "moments/first/h.1.mlp.c_fc.weight", "(257, 64)"})
    EXPECT_NE(inspected.out.find(word), std::string::npos) << word << " is missing: " << inspected.text();

  const Result outline = run(megalith({"checkpoint", "inspect", checkpoint}), scratch.folder());
  EXPECT_LT(count(outline.out, "\n"), 40u) << "more than a screen: " << outline.text();
  for (const char* word : {"step 8", "3 files", "  parameters/ ", " layers = 2", "--all"})
    EXPECT_NE(outline.out.find(word), std::string::npos) << word << " is missing: " << outline.text();

  const Result whole = run(megalith({"checkpoint", "verify", checkpoint}), scratch.folder());
  EXPECT_EQ(whole.status, 0) << whole.text();
  EXPECT_NE(whole.out.find("all well"), std::string::npos) << whole.text();

  // A run folder stands for its newest.
  for (const char* folder : {"run", "run/checkpoints"}) {
    EXPECT_EQ(run(megalith({"checkpoint", "inspect", folder, "--all"}), scratch.folder()).out, inspected.out);
    EXPECT_EQ(run(megalith({"checkpoint", "verify", folder}), scratch.folder()).out,
              "checkpoint " + checkpoint + "\n" + whole.out);
  }
  const Result from_run = run(megalith({"checkpoint", "export", "run", "--out", "from_run"}), scratch.folder());
  EXPECT_EQ(from_run.status, 0) << from_run.text();
  EXPECT_TRUE(from_run.out.starts_with("checkpoint " + checkpoint + "\nfrom_run\n")) << from_run.text();

  // A byte in the middle of a known dataset.
  const auto manifest = nlohmann::json::parse(read_file(scratch / checkpoint + "/manifest.json"));
  const auto& file = manifest.at("files").at(1);
  const auto& dataset = file.at("datasets").at(file.at("datasets").size() / 2);
  const std::string name = file.at("name"), path = scratch / checkpoint + "/" + name;
  flip_byte(path, dataset.at("offset").get<size_t>() + 5);
  const Result damaged = run(megalith({"checkpoint", "verify", checkpoint}), scratch.folder());
  EXPECT_EQ(damaged.status, 1) << damaged.text();
  EXPECT_NE(damaged.out.find(name), std::string::npos) << damaged.text();
  EXPECT_NE(damaged.out.find(dataset.at("dataset").get<std::string>() + " is damaged"), std::string::npos)
      << damaged.text();
  flip_byte(path, dataset.at("offset").get<size_t>() + 5);

  // The export gives what the checkpoint gives, and is a beginning for another run.
  const Result exported = run(megalith({"checkpoint", "export", checkpoint, "--out", "export"}), scratch.folder());
  ASSERT_EQ(exported.status, 0) << exported.text();
  std::vector<std::string> losses;
  for (const std::string& model :
       {checkpoint, std::string("export"), std::string("run"), std::string("run/checkpoints")}) {
    const Result evaluated = run(
        megalith({"evaluate", "--checkpoint", model, "--data", reference("tiny") + "/tokens.bin"}), scratch.folder());
    EXPECT_EQ(evaluated.status, 0) << evaluated.text();
    losses.push_back(evaluated.out);
  }
  for (const std::string& loss : losses) EXPECT_EQ(loss, losses.front());
  train(scratch.folder(), 2, {"run.output=from_export", "checkpoint.init_from=export", "train.steps=2"});
  train(scratch.folder(), 2, {"run.output=from_checkpoint", "checkpoint.init_from=" + checkpoint, "train.steps=2"});
  EXPECT_EQ(read_steps(scratch / "from_export"), read_steps(scratch / "from_checkpoint"));
  EXPECT_EQ(read_steps(scratch / "from_export").size(), 2u);
  // A checkpoint of the run itself wins over init_from.
  const Result resumed =
      train(scratch.folder(), 2, {"run.output=from_export", "checkpoint.init_from=" + reference("tiny")});
  EXPECT_NE(resumed.out.find("resumed after step 2"), std::string::npos) << resumed.text();
}

// Each case has what is wrong with the newest checkpoint, and what the console must say of it.
struct Damage {
  std::string name;
  void (*inflict)(const std::string& checkpoint);
  std::string reason;
};

void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class DamagedNewest : public testing::TestWithParam<Damage> {};

TEST_P(DamagedNewest, falls_back_says_so_and_gets_to_the_same_end) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_tiny(scratch);
  train(scratch.folder(), 2, {"run.output=whole", "checkpoint.every=3"});
  train(scratch.folder(), 2, {"checkpoint.every=3", "train.steps=6"});
  GetParam().inflict(scratch / "run/checkpoints/step-00000006");
  const Result resumed = train(scratch.folder(), 2, {"checkpoint.every=3"});
  EXPECT_NE(resumed.out.find("step-00000006"), std::string::npos) << resumed.text();
  EXPECT_NE(resumed.out.find(GetParam().reason), std::string::npos) << resumed.text();
  EXPECT_NE(resumed.out.find("resumed after step 3\n"), std::string::npos) << resumed.text();
  EXPECT_EQ(read_steps(scratch / "run"), read_steps(scratch / "whole"));
  for (const char* name : {"step-00000003", "step-00000006", "step-00000008"})
    expect_same_rank_files(scratch / "run/checkpoints/" + name, scratch / "whole/checkpoints/" + name);
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoint, DamagedNewest,
    testing::Values(
        Damage{"flipped_byte", [](const std::string& c) { flip_byte(c + "/rank-00001.h5", 300000); }, "checksum"},
        Damage{"truncated_file", [](const std::string& c) { fs::resize_file(c + "/rank-00000.h5", 5000); },
               "has 5000 bytes, expected"},
        Damage{"missing_file", [](const std::string& c) { fs::remove(c + "/rank-00001.h5"); }, "rank-00001.h5"},
        Damage{"no_manifest", [](const std::string& c) { fs::remove(c + "/manifest.json"); }, "manifest.json"},
        Damage{"flipped_byte_in_manifest", [](const std::string& c) { flip_byte(c + "/manifest.json", 700); },
               "manifest.json"},
        // As a death during the save leaves it.
        Damage{"half_written",
               [](const std::string& c) {
                 const fs::path path = c;
                 fs::remove(path / "manifest.json");
                 fs::rename(path, path.parent_path() / ".step-00000006.partial");
               },
               "never finished"}),
    [](const auto& suite) { return suite.param.name; });

TEST(Checkpoint, all_damaged_is_an_error_and_touches_nothing) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_tiny(scratch);
  train(scratch.folder(), 2, {"checkpoint.every=4"});
  for (const char* name : {"step-00000004", "step-00000008"})
    flip_byte(scratch / "run/checkpoints/" + name + std::string("/rank-00000.h5"), 300000);
  auto before = snapshot(scratch / "run");
  const Result result = run(mpirun(2, {"train", "config.toml"}), scratch.folder());
  EXPECT_GT(result.status, 0);
  EXPECT_NE(result.err.find("none of 2 checkpoints in run/checkpoints can be read"), std::string::npos)
      << result.text();
  auto after = snapshot(scratch / "run");
  // The program had begun by then: the log tells of it, and the config is the one it was begun with.
  for (const char* name : {"log.txt", "config.toml"}) {
    before.erase(name);
    after.erase(name);
  }
  EXPECT_TRUE(before == after);
}

// None is complete any more, and so nothing to go on from; but neither to begin again and bury what was.
TEST(Checkpoint, all_incomplete_is_an_error_and_touches_nothing) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_tiny(scratch);
  train(scratch.folder(), 2, {"checkpoint.every=4"});
  for (const char* name : {"step-00000004", "step-00000008"})
    fs::remove(scratch / "run/checkpoints/" + name + std::string("/rank-00000.h5"));
  const auto before = snapshot(scratch / "run");
  const Result result = run(mpirun(2, {"train", "config.toml"}), scratch.folder());
  EXPECT_GT(result.status, 0);
  for (const char* words : {"none of 2 checkpoints in run/checkpoints is complete and finite",
                            "step-00000008/rank-00000.h5", "move them away", "checkpoint.resume = never"})
    EXPECT_NE(result.err.find(words), std::string::npos) << words << " is missing: " << result.text();
  EXPECT_TRUE(before == snapshot(scratch / "run"));

  // The remedy: the run begins again, and what the first one wrote is still there.
  train(scratch.folder(), 2, {"checkpoint.every=4", "checkpoint.resume=never"});
  EXPECT_EQ(read_steps(scratch / "run").size(), 8u);
  EXPECT_EQ(read_file(scratch / "run/metrics.earlier-1.jsonl"), before.at("metrics.jsonl"));
  EXPECT_TRUE(fs::exists(scratch / "run/checkpoints/step-00000008.damaged-1"));
}

// A file that is a link to itself is absent: the run continues from the checkpoint before.
TEST(Checkpoint, one_with_a_loop_of_links_is_passed_over) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_tiny(scratch);
  train(scratch.folder(), 1, {"checkpoint.every=4"});
  const fs::path file = scratch / "run/checkpoints/step-00000008/rank-00000.h5";
  fs::remove(file);
  fs::create_symlink(file, file);  // what not even root can follow
  const Result resumed = train(scratch.folder(), 1, {"train.steps=9"});
  EXPECT_NE(resumed.text().find("step-00000008 is not used"), std::string::npos) << resumed.text();
  EXPECT_NE(resumed.text().find("rank-00000.h5 of the checkpoint is missing: Too many levels"), std::string::npos)
      << resumed.text();
  EXPECT_NE(resumed.out.find("resumed after step 4\n"), std::string::npos) << resumed.text();
}

void expect_last_good(const Scratch& scratch, const std::string& run_folder, const Result& failed,
                      const Args& overrides) {
  EXPECT_GT(failed.status, 0) << failed.text();
  EXPECT_LT(failed.status, 128) << failed.text();
  const std::vector<std::string> names = checkpoints_in(run_folder + "/checkpoints");
  ASSERT_FALSE(names.empty()) << failed.text();
  for (const std::string& name : names) {
    const Result verified =
        run(megalith({"checkpoint", "verify", run_folder + "/checkpoints/" + name}), scratch.folder());
    EXPECT_EQ(verified.status, 0) << verified.text();
  }
  for (const auto& entry : fs::directory_iterator(run_folder + "/checkpoints"))
    EXPECT_NE(entry.path().extension(), ".partial") << "takes space for nothing";
  const Result resumed = train(scratch.folder(), 2, overrides);
  EXPECT_NE(resumed.out.find(fmt::format("resumed after step {}\n", std::stoll(names.back().substr(5)))),
            std::string::npos)
      << resumed.text();
}

// The disk is full in the middle of a run: a limit on the size of files, which every system has. The run goes on
// without checkpoints, and has them again once there is room.
TEST(Checkpoint, a_disk_that_is_full_for_a_while_ends_nothing) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_tiny(scratch);
  // Above what the log and the metrics take, below a rank's file.
  Process process(mpirun(2, {"train", "config.toml", "train.steps=100000", "checkpoint.every=5", "checkpoint.keep=2"}),
                  scratch.folder());
  const double start = now();
  size_t at = 0;
  const auto wait_for = [&](const std::string& words) {
    size_t found;
    while ((found = process.out().find(words, at)) == std::string::npos) {
      ASSERT_LT(now() - start, 60) << words;
      ASSERT_TRUE(process.running()) << process.wait().text();
      sleep_for(0.003);
    }
    at = found;
  };
  const auto limit_files = [](rlim_t bytes) {
    const struct rlimit limit { bytes, RLIM_INFINITY };
    for (const pid_t rank : Process::ranks()) ASSERT_EQ(::prlimit(rank, RLIMIT_FSIZE, &limit, nullptr), 0);
  };
  wait_for("step 10  checkpoint");
  limit_files(500000);
  wait_for("warning: no checkpoint could be written; the run continues and tries again: ");
  for (const char* word : {"rank-0000", "bytes wanted", "500000 bytes", "ulimit -f", "checkpoint.patience = 240"})
    wait_for(word);
  wait_for("warning: no checkpoint");
  limit_files(RLIM_INFINITY);
  wait_for("  checkpoint run/checkpoints/step-");
  ::kill(Process::ranks().back(), SIGUSR1);
  const Result result = process.wait(30);
  EXPECT_EQ(result.status, 75) << result.text();
  const int64_t reached = read_steps(scratch / "run").back().step;
  expect_last_good(scratch, scratch / "run", result, {fmt::format("train.steps={}", reached + 2), "checkpoint.keep=2"});
}

struct SmallDisk {
  std::string path;
  bool ok;
  explicit SmallDisk(const std::string& p) : path(p), ok(::mount("tmpfs", p.c_str(), "tmpfs", 0, "size=4m") == 0) {}
  ~SmallDisk() {
    if (ok) ::umount(path.c_str());
  }
};

// The file system really is full, and the run has no patience.
TEST(Checkpoint, a_full_file_system_costs_one_checkpoint) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_tiny(scratch);
  const std::string disk = scratch / "disk";
  fs::create_directory(disk);
  const SmallDisk mounted(disk);
  if (!mounted.ok) GTEST_SKIP() << "this user may not mount a small file system";
  const Args overrides{"run.output=disk/run", "checkpoint.every=2"};
  Args full = overrides;
  full.insert(full.begin(), {"train", "config.toml", "checkpoint.patience=0"});
  const Result result = run(mpirun(2, full), scratch.folder());
  for (const char* word : {"No space left on device", "bytes wanted", "bytes are available", "free some space"})
    EXPECT_NE(result.err.find(word), std::string::npos) << word << " is missing: " << result.text();
  EXPECT_EQ(checkpoints_in(disk + "/run/checkpoints").size(), 2u);
  // Room for one more is what the message asks for.
  fs::remove_all(disk + "/run/checkpoints/step-00000002");
  expect_last_good(scratch, disk + "/run", result, {"run.output=disk/run", "train.steps=6"});
}

}  // namespace
}  // namespace megalith::e2e
