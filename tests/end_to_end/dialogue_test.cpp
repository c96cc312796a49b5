// `generate --interactive`: lines that are typed or come from a pipe are continued one after the other.
#include <fmt/format.h>

#include "tests/end_to_end/helpers.h"
#include "tests/end_to_end/terminal.h"

namespace megalith::e2e {
namespace {

// With a vocabulary of bytes and a text of two-byte characters, every character comes in two pieces.
const std::string config_of_dialogues =
    "[model]\nlayers = 2\nhidden = 32\nheads = 4\ncontext = 64\n"
    "[data]\ntrain = \"data/train.bin\"\n"
    "[batch]\nglobal_batch_size = 8\nmicrobatch_size = 4\n"
    "[optimizer]\nlearning_rate = 1e-2\nwarmup_steps = 5\n"
    "[train]\nsteps = 60\n[run]\noutput = \"run\"\n";

class Interactive : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<Scratch>();
    std::string text;
    for (int i = 0; i < 400; i++) text += "\u00e4\u00f6\u00fc \u00e9\u00e8 \u03b1\u03b2\u03b3. ";
    write_file(*scratch_ / "text.txt", text);
    write_file(*scratch_ / "config.toml", config_of_dialogues);
    succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--out", "data", "--validation", "0"}),
            *scratch_);
    train(scratch_->folder(), 1, {});
    write_file(*scratch_ / "lines", "\u00e4\u00f6\n\u03b1\n");
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static Args talk(const Args& more) {
    Args args{"generate", "--checkpoint", "run", "--interactive", "--temperature", "0"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  static std::unique_ptr<Scratch> scratch_;
};
std::unique_ptr<Scratch> Interactive::scratch_;

TEST_F(Interactive, LinesOfAPipeAreContinuedEachOnAnyNumberOfRanks) {
  std::string expected;
  for (const std::string prompt : {"\u00e4\u00f6", "\u03b1"}) {
    const std::string whole =
        succeed(
            megalith({"generate", "--checkpoint", "run", "--prompt", prompt, "--tokens", "20", "--temperature", "0"}),
            *scratch_)
            .out;
    expected += whole.substr(prompt.size());
  }
  const Args args = talk({"--tokens", "20"});
  EXPECT_EQ(run(megalith(args), scratch_->folder(), 60, "exec < lines").out, expected);
  Args on_two = talk({"--tokens", "20", "parallel.tensor_parallel_degree=2"});
  EXPECT_EQ(run(mpirun(2, on_two), scratch_->folder(), 60, "exec < lines").out, expected);
  on_two.insert(on_two.begin(), {"run", "-n", "2"});
  const Result started = run(megalith(on_two), scratch_->folder(), 60, "exec < lines");
  EXPECT_EQ(started.out, expected) << started.text();
  EXPECT_EQ(started.status, 0);
}

// What the terminal got in one read ends with a whole character, whatever was written in how many pieces.
TEST_F(Interactive, AtATerminalCtrlCEndsTheTextAndCtrlDTheProgram) {
  if (!can_make_terminals()) GTEST_SKIP() << "this system makes no terminals: /dev/pts is not mounted";
  for (const bool launched : {false, true}) {
    SCOPED_TRACE(launched ? "megalith run -n 2" : "alone");
    Args args = talk({"--tokens", "100000"});
    if (launched) args.insert(args.begin(), {"run", "-n", "2"});
    Terminal terminal(megalith(args), scratch_->folder());
    terminal.wait_for("Ctrl-D the program");
    terminal.wait_for("> ");
    terminal.type("\u00e4\u00f6\r");
    terminal.wait_for("\u03b1\u03b2\u03b3");  // it writes, and would for long
    terminal.type("\x03");
    terminal.wait_for("> ", 20);
    terminal.type("\x03");  // between texts
    terminal.wait_for("> ", 20);
    terminal.type("\u03b1\r");
    terminal.wait_for("\u03b2\u03b3");
    terminal.type("\x03");
    terminal.wait_for("> ", 20);
    terminal.type("\x04");
    EXPECT_EQ(terminal.wait(20), 0) << terminal.shown();
  }
}

TEST_F(Interactive, ColoursAreLeftOutWhereTheyAreNotWanted) {
  if (!can_make_terminals()) GTEST_SKIP() << "this system makes no terminals: /dev/pts is not mounted";
  for (const auto& [environment, coloured] : {std::pair{Args{}, true}, {Args{"NO_COLOR=1"}, false}}) {
    Terminal terminal(megalith(talk({"--tokens", "4"})), scratch_->folder(), environment);
    terminal.wait_for("> ");
    terminal.type("\x04");
    EXPECT_EQ(terminal.wait(20), 0);
    EXPECT_EQ(terminal.shown().find("\033[") != std::string::npos, coloured) << terminal.shown();
  }
  const Result piped = run(megalith(talk({"--tokens", "4"})), scratch_->folder(), 60, "exec < lines");
  EXPECT_EQ((piped.out + piped.err).find("\033["), std::string::npos) << piped.text();
}

TEST_F(Interactive, WhatDoesNotGoTogetherIsRefused) {
  const auto refused = [&](const Args& more) { return run(megalith(talk(more)), scratch_->folder()).err; };
  EXPECT_NE(refused({"--prompt", "x"}).find("--interactive reads prompts"), std::string::npos);
  EXPECT_NE(refused({"--samples", "2"}).find("--samples 2"), std::string::npos);
}

}  // namespace
}  // namespace megalith::e2e
