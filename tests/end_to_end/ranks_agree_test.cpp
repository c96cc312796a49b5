// Ranks that were started with different things: all end before anything is written, and the odd one is named.
#include <unistd.h>

#include <filesystem>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

std::string host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

class RanksAgree : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_REFERENCE();
    write_reference_config(scratch / "config.toml", reference("tiny"), "");
  }

  void expect_refusal(const std::vector<Part>& parts, const Args& words) {
    expect_refused(mpirun(parts), scratch, words);
  }

  const Scratch scratch;
  const Args train_it{"train", "config.toml"};
};

TEST_F(RanksAgree, ranks_that_agree_train) {
  fs::create_directory(scratch / "other");
  write_reference_config(scratch / "other/config.toml", reference("tiny"), "");
  Args args = train_it;
  args.insert(args.end(), {"train.steps=1", "run.output=" + (scratch / "run")});
  const Result result = run(mpirun({{1, args}, {1, args, MEGALITH_PROGRAM, "other"}}), scratch.folder());
  EXPECT_EQ(result.status, 0) << result.text();
  EXPECT_EQ(read_steps(scratch / "run").size(), 1u);
}

TEST_F(RanksAgree, another_override_on_one_rank) {
  const Args other{"train", "config.toml", "optimizer.learning_rate=0.125"};
  expect_refusal({{1, train_it}, {1, other}, {1, train_it}},
                 {"megalith: rank 1: was started differently from rank 0; give every rank the same program, "
                  "config, overrides and files. On " +
                  host() + ":\n  optimizer.learning_rate: 0.125; on rank 0: 0.003\n"});
  // Whoever differs from rank 0 is named, also where rank 0 is the odd one.
  expect_refusal({{1, other}, {2, train_it}}, {"megalith: rank 1, 2: was ", "0.003; on rank 0: 0.125\n"});
}

TEST_F(RanksAgree, another_run_folder_on_one_rank) {
  expect_refusal({{1, train_it}, {1, {"train", "config.toml", "run.output=elsewhere"}}},
                 {"rank 1: ", "\n  checkpoint.directory: \"elsewhere/checkpoints\"; on rank 0: ",
                  "\n  run.output: \"elsewhere\"; on rank 0: "});
}

TEST_F(RanksAgree, another_executable_on_one_rank) {
  const std::string copy = scratch / "megalith";
  write_file(copy, read_file(MEGALITH_PROGRAM) + '\0');
  fs::permissions(copy, fs::perms::owner_all);
  expect_refusal({{2, train_it}, {1, train_it, copy}},
                 {"rank 2: ", "\n  executable: " + copy + " (", "; on rank 0: " MEGALITH_PROGRAM " ("});
}

TEST_F(RanksAgree, another_file_of_the_same_name_on_one_rank) {
  const std::string tokens = read_file(reference("tiny") + "/tokens.bin");
  for (const char* node : {"node0", "node1"}) {
    write_reference_config(scratch / node + "/config.toml", reference("tiny"), "");
    write_file(scratch / node + "/tokens.bin", tokens);
  }
  flip_byte(scratch / "node1/tokens.bin", tokens.size() / 2);
  const Args args{"train", "config.toml", "data.train=tokens.bin"};
  const std::vector<Part> parts{{2, args, MEGALITH_PROGRAM, "node0"}, {1, args, MEGALITH_PROGRAM, "node1"}};
  expect_refusal(
      parts, {"rank 2: ", "\n  the file of data.train: ", "node1/tokens.bin (", "; on rank 0: ", "node0/tokens.bin ("});
  fs::remove(scratch / "node1/tokens.bin");
  expect_refusal(parts, {"rank 2: ", "node1/tokens.bin (cannot open ", "No such file"});
}

// All else is the same, so this alone shows it, and at once: the first save may be hours away.
TEST_F(RanksAgree, another_checkpoint_folder_of_the_same_name_on_one_rank) {
  for (const char* node : {"node0", "node1"})
    write_reference_config(scratch / node + "/config.toml", reference("tiny"), "");
  const Args args{"train", "config.toml", "run.output=run"};
  const std::vector<Part> parts{{2, args, MEGALITH_PROGRAM, "node0"}, {1, args, MEGALITH_PROGRAM, "node1"}};
  const auto expect_end = [&](const std::string& words) {
    const Result result = run(mpirun(parts), scratch.folder());
    EXPECT_EQ(result.status, 1) << result.text();
    EXPECT_NE(result.err.find("megalith: rank 2: " + words), std::string::npos) << result.text();
    EXPECT_NE(result.err.find("start all ranks in one working directory"), std::string::npos) << result.text();
    EXPECT_TRUE(read_steps(scratch / "node0/run").empty());
    for (const auto& entry : fs::directory_iterator(scratch / "node0/run/checkpoints"))
      EXPECT_EQ(entry.path().filename(), "lock") << "nothing is left behind";
  };
  expect_end("cannot write run/checkpoints/");
  fs::create_directories(scratch / "node1/run/checkpoints");
  expect_end("the checkpoint folder " + (scratch / "node1/run/checkpoints") + " on " + host() +
             " is not that of rank 0, which is " + (scratch / "node0/run/checkpoints"));
}

// So early that one has no config to compare.
TEST_F(RanksAgree, no_config_on_one_rank) {
  expect_refusal({{1, train_it}, {1, {"train", "absent.toml"}}, {1, train_it}},
                 {"rank 1: cannot read configuration absent.toml"});
  expect_refusal({{1, {"train", "absent.toml"}}, {2, train_it}}, {"rank 0: cannot read configuration absent.toml"});
}

// Ranks with another command would wait in another collective, for ever.
TEST_F(RanksAgree, another_command_on_one_rank) {
  expect_refusal({{1, train_it}, {1, {"trian", "config.toml"}}}, {"rank 1: ", "trian", "megalith --help"});
  expect_refusal({{1, {"trian", "config.toml"}}, {1, train_it}}, {"rank 0: ", "trian", "megalith --help"});
  expect_refusal({{1, train_it}, {1, {"plan", "config.toml", "--ranks", "1"}}},
                 {"rank 1: the command is plan, but train on rank 0; start every rank with the same command"});
}

}  // namespace
}  // namespace megalith::e2e
