// What somebody else put into a run's folder, or where a command is to write, is there afterwards as it was.
#include <filesystem>

#include "configs/output_file.h"
#include "tests/data/scratch.h"
#include "trainer/log/log.h"
#include "trainer/train/metrics.h"
#include "trainer/train/run_folder.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

class NotOurs : public testing::Test {
 protected:
  NotOurs() {
    fs::create_directory(run_);
    config_.run.output = run_;
    config_ = resolve(config_);
  }
  ~NotOurs() override { log_to_console(); }

  void begin() const { const megalith::RunFolder folder(config_, nullptr, 0); }
  std::string in_run(const std::string& name) const { return run_ + "/" + name; }
  void expect_refused(const std::string& words) const {
    const std::string message = message_of([&] { begin(); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }

  const test::Scratch scratch_;
  const std::string run_ = scratch_.path("run"), mine_ = scratch_.write("mine", "my notes\n");
  Config config_;
};

TEST_F(NotOurs, ALockIsWhatAJobWrites) {
  for (const std::string& text :
       Texts{"my notes\n", "process of law\n", "process 12", "process 12 on the left\nand more\n"}) {
    scratch_.write("run/lock", text + std::string(text.size() > 25 ? 600 : 0, '!'));
    const std::string before = read_file(in_run("lock"));
    expect_refused(
        "lock is not the lock of a job and is not overwritten; move it away or choose another with run.output");
    EXPECT_EQ(read_file(in_run("lock")), before);
  }
  for (const std::string& text : Texts{"", std::string(20, '\0'), "process 12 on host\nst\n"}) {
    scratch_.write("run/lock", text);
    begin();
  }
}

TEST_F(NotOurs, NothingIsWrittenThroughALink) {
  for (const char* name : {"lock", "log.txt"}) {
    fs::create_symlink(mine_, in_run(name));
    expect_refused("a link");
    EXPECT_TRUE(fs::is_symlink(in_run(name))) << name;
    fs::remove(in_run(name));
  }
  fs::create_symlink(mine_, in_run("metrics.jsonl"));
  EXPECT_NE(message_of([&] { write_file(in_run("metrics.jsonl"), "", {.replace = true}); }).find("is a link"),
            std::string::npos);
  fs::remove(in_run("config.toml"));
  fs::remove(in_run("metrics.jsonl"));
  fs::create_symlink(mine_, in_run("config.toml"));
  begin();
  EXPECT_EQ(fs::read_symlink(in_run("config.earlier-1.toml")), mine_);
  EXPECT_EQ(read_file(mine_), "my notes\n");
  fs::create_symlink("nowhere", in_run("dangling"));
  const std::string to_nothing = "dangling is a link to nowhere, which does not exist";
  EXPECT_NE(message_of([&] { write_file(in_run("dangling"), ""); }).find(to_nothing), std::string::npos);
  EXPECT_NE(message_of([&] { move_file(in_run("config.toml"), in_run("dangling")); }).find(to_nothing),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              make_folders(in_run("dangling"), "choose another");
            }).find("dangling: it is a link to nowhere, which does not exist; choose another"),
            std::string::npos);
  EXPECT_NE(message_of([&] { make_folders(in_run("config.earlier-1.toml"), "choose another"); }).find("it is a link;"),
            std::string::npos);
}

TEST_F(NotOurs, WhatIsNoFileIsNotReplacedByOne) {
  fs::create_directory(in_run("folder"));
  for (const std::string& path : Texts{"/dev/null", in_run("folder")})
    EXPECT_NE(message_of([&] { write_file(path, "", {.replace = true}); }).find("is not replaced"), std::string::npos);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(NotOurs, AConfigWrittenByHandIsSetAside) {
  const std::string by_hand = "# why: the second try\n[train]\nsteps = 20\n";
  scratch_.write("run/config.toml", by_hand);
  for (int64_t steps : {1000, 20, 30}) {  // what a run has written, it writes again
    config_.train.steps = steps;
    begin();
    EXPECT_EQ(read_file(in_run("config.toml")), config_to_keep(config_));
  }
  EXPECT_EQ(read_file(in_run("config.earlier-1.toml")), by_hand);
  EXPECT_FALSE(fs::exists(in_run("config.earlier-2.toml")));
  scratch_.write("run/config.toml", config_to_keep(config_) + "# a note\n");
  begin();
  EXPECT_TRUE(read_file(in_run("config.earlier-2.toml")).ends_with("# a note\n"));
}

TEST_F(NotOurs, NotesInTheNameOfTheLogAreSetAside) {
  int k = 0;
  for (const std::string& notes : Texts{"my notes\n", "2024 was a year\n", "2024-01-01 and on\n"}) {
    scratch_.write("run/log.txt", notes);
    begin();
    EXPECT_EQ(read_file(in_run(fmt::format("log.earlier-{}.txt", ++k))), notes);
    const std::string log = read_file(in_run("log.txt"));
    EXPECT_NE(log.find("is not the log of a run and is now " + in_run("log.earlier-")), std::string::npos) << log;
    EXPECT_EQ(log.find(notes), std::string::npos) << log;
    begin();  // what a run has begun it goes on with
    EXPECT_TRUE(read_file(in_run("log.txt")).starts_with(log));
  }
  for (const std::string& ours : Texts{"", std::string(40, '\0') + "\n", "2024-01-01 12:30:00 megalith 0.1.0\n"}) {
    scratch_.write("run/log.txt", ours);
    begin();
    EXPECT_TRUE(read_file(in_run("log.txt")).starts_with(ours));
  }
  EXPECT_FALSE(fs::exists(in_run("log.earlier-4.txt")));
}

TEST_F(NotOurs, OutputsTakeTheirLikesPlaceAndNoOthers) {
  for (const char* name : {"train.bin", "train.idx", "mine.toml", "rank-00000.h5", "model.safetensors", "manifest.json",
                           "metrics.jsonl", "log.txt", "tokenizer.json"}) {
    scratch_.write(name, "x");
    const std::string message = message_of([&] { check_output("--items", scratch_.path(name)); });
    EXPECT_NE(message.find("--items " + scratch_.path(name)), std::string::npos) << name << ": " << message;
    EXPECT_NE(message.find("choose another file"), std::string::npos) << message;
  }
  scratch_.write("items.jsonl", "x");
  for (const char* name : {"items.jsonl", "new.toml", ""}) check_output("--items", *name ? scratch_.path(name) : "");
}

TEST_F(NotOurs, CallsOfAnotherKindStay) {
  scratch_.write("run/calls/rank-0", "");
  scratch_.write("run/calls/warning.0.1.2", "");
  begin();
  scratch_.write("run/calls/monday.wav", "");
  expect_refused("monday.wav in it does not belong to a job");
}

TEST_F(NotOurs, LinesOfAnotherAreKept) {
  const std::string ours = "{\"step\": 1, \"loss\": 2}\n", cut = "{\"step\": 2, \"lo\n";
  const auto metrics_after = [&](const std::string& text, int64_t completed) {
    scratch_.write("run/metrics.jsonl", text);
    { const Metrics metrics(run_, true, completed, {}); }
    return read_file(in_run("metrics.jsonl"));
  };
  EXPECT_TRUE(metrics_after(ours + cut, 1).starts_with(ours));
  EXPECT_FALSE(fs::exists(in_run("metrics.earlier-1.jsonl")));
  int k = 0;
  for (const std::string& theirs : Texts{"{\"epoch\": 1}\n", "loss 3\n", "[1, 2]\n"})
    for (const int64_t completed : {0, 1}) {
      metrics_after(ours + theirs, completed);
      EXPECT_EQ(read_file(in_run(fmt::format("metrics.earlier-{}.jsonl", ++k))), ours + theirs);
    }
}

}  // namespace
}  // namespace megalith
