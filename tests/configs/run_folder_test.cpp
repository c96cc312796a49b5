// A run folder is an argument, and the config.toml in it means the folder where it lies.
#include <filesystem>
#include <fstream>

#include "configs/config.h"
#include "tests/data/scratch.h"
#include "tests/message_of.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

class RunFolder : public testing::Test {
 protected:
  RunFolder() {
    scratch_.write("b/config.toml",
                   fmt::format("run.output = \"{0}\"\n[data]\ntrain = [\"{0}/data/*.bin 2\", \"other.bin 1\"]\n"
                               "tokenizer = \"{0}/data/tokenizer\"\n[communication]\nrendezvous = \"{0}/meet\"\n",
                               old_));
  }
  void ran() { scratch_.write("b/lock", ""), scratch_.write("b/log.txt", ""); }

  const test::Scratch scratch_;
  const std::string old_ = scratch_.path("a"), now_ = scratch_.path("b"), file_ = now_ + "/config.toml";
};

TEST_F(RunFolder, MovedGoesOnWhereItIs) {
  ran();
  for (const std::string& path : {now_, now_ + "/", file_}) {
    const Config config = load_config(path);
    EXPECT_EQ(config.run.output, now_);
    EXPECT_EQ(config.checkpoint.directory, now_ + "/checkpoints");
    EXPECT_EQ(config.data.train, now_ + "/data/*.bin 2\nother.bin 1\n");
    EXPECT_EQ(config.data.tokenizer, now_ + "/data/tokenizer");
    EXPECT_EQ(load_places(path, {}).checkpoint.directory, config.checkpoint.directory);
    EXPECT_EQ(load_communication(path, {}).rendezvous, now_ + "/meet");
  }
}

TEST_F(RunFolder, ACopyOfItsCheckpointsIsOne) {
  EXPECT_EQ(load_config(file_).run.output, old_);
  fs::create_directories(now_ + "/checkpoints/step-00000004");
  EXPECT_EQ(load_config(file_).run.output, now_);
  std::ofstream(file_) << "checkpoint.directory = \"checkpoints\"\nrun.output = \"elsewhere\"\n";
  EXPECT_EQ(load_config(file_).run.output, "elsewhere") << "its checkpoints lie beside it by what it says";
}

TEST_F(RunFolder, WhatWasLeftBehindStaysThere) {
  ran();
  scratch_.write("a/data/one.bin", "");
  EXPECT_EQ(load_config(now_).data.train, old_ + "/data/*.bin 2\nother.bin 1\n");
  scratch_.write("b/data/one.bin", "");
  EXPECT_EQ(load_config(now_).data.train, now_ + "/data/*.bin 2\nother.bin 1\n") << "a copy has its own";
}

TEST_F(RunFolder, AnOverrideWins) {
  ran();
  EXPECT_EQ(load_config(now_, {"run.output=c"}).run.output, "c");
  EXPECT_EQ(load_config(now_, {"run.output=c"}).checkpoint.directory, "c/checkpoints");
}

TEST_F(RunFolder, AnotherFileOrFolderIsNone) {
  EXPECT_EQ(load_config(file_).run.output, old_) << "no run has been here";
  EXPECT_NE(message_of([&] { load_config(now_); }).find("b is not a run folder"), std::string::npos);
  ran();
  fs::copy(file_, now_ + "/mine.toml");
  EXPECT_EQ(load_config(now_ + "/mine.toml").run.output, old_);
  fs::create_directory(scratch_.path("empty"));
  EXPECT_NE(message_of([&] { load_config(scratch_.path("empty")); }).find("it is a folder without config.toml"),
            std::string::npos);
}

}  // namespace
}  // namespace megalith
