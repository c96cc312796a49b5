// `megalith chat`, from a pipe and at a terminal of 80 columns.
#include <fmt/format.h>

#include "tests/end_to_end/helpers.h"
#include "tests/end_to_end/terminal.h"

namespace megalith::e2e {
namespace {

const std::string config_of_chats =
    "[model]\nlayers = 2\nhidden = 48\nheads = 4\ncontext = 600\npositions = \"rotary\"\n"
    "[data]\ntrain = \"data/train.bin\"\n"
    "[batch]\nsequence_length = 64\nglobal_batch_size = 8\nmicrobatch_size = 8\n"
    "[optimizer]\nlearning_rate = 1e-2\nwarmup_steps = 5\n"
    "[train]\nsteps = 120\n[run]\noutput = \"run\"\n";

std::string question(const std::string& text) { return "### Instruction:\n" + text + "\n\n### Response:\n"; }

// A model of bytes that has learned a short answer and one that is far longer than its context.
class Chat : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<Scratch>();
    std::string text, endless;
    for (int i = 0; i < 400; i++) endless += "ab\u00e4 ";
    for (int i = 0; i < 40; i++) text += question("name?") + "Ada.<|endoftext|>";
    text += question("on") + endless + "<|endoftext|>";
    write_file(*scratch_ / "text.txt", text);
    write_file(*scratch_ / "config.toml", config_of_chats);
    succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--out", "data", "--validation", "0"}),
            *scratch_);
    train(scratch_->folder(), 1, {});
    write_file(*scratch_ / "messages", "name?\non\nname?\n");
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static Args chat(const Args& more) {
    Args args{"chat", "run", "--template", "plain", "--temperature", "0"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  static std::string continued(const std::string& prompt, int tokens) {
    const std::string whole = succeed(megalith({"generate", "--checkpoint", "run", "--prompt", prompt, "--tokens",
                                                std::to_string(tokens), "--temperature", "0"}),
                                      *scratch_)
                                  .out;
    return whole.substr(prompt.size(), whole.size() - prompt.size() - 1);
  }
  static std::unique_ptr<Scratch> scratch_;
};
std::unique_ptr<Scratch> Chat::scratch_;

TEST_F(Chat, FromAPipeEachLineIsAMessageAndTheAnswersAreThoseOfTheWholeText) {
  std::string text, expected;
  for (const std::string message : {"name?", "on", "name?"}) {
    text += question(message);
    const std::string answer = continued(text, 20);
    expected += answer + "\n";
    text += answer + "<|endoftext|>\n\n";
  }
  EXPECT_EQ(expected.substr(0, 5), "Ada.\n");
  const Args args = chat({"--tokens", "20"});
  const Result alone = run(megalith(args), scratch_->folder(), 60, "exec < messages");
  EXPECT_EQ(alone.out, expected) << alone.text();
  EXPECT_EQ(alone.status, 0);
  for (const std::string layout : {"parallel.tensor_parallel_degree=2", "parallel.pipeline_parallel_degree=2"}) {
    Args on_two = chat({"--tokens", "20", layout});
    const Result found = run(mpirun(2, on_two), scratch_->folder(), 60, "exec < messages");
    EXPECT_EQ(found.out, expected) << found.text();
    on_two.insert(on_two.begin(), {"run", "-n", "2"});
    EXPECT_EQ(run(megalith(on_two), scratch_->folder(), 60, "exec < messages").out, expected);
  }
}

TEST_F(Chat, AtATerminalItStreamsEndsAnswersAndObeys) {
  if (!can_make_terminals()) GTEST_SKIP() << "this system makes no terminals: /dev/pts is not mounted";
  for (const bool launched : {false, true}) {
    SCOPED_TRACE(launched ? "megalith run -n 2" : "alone");
    Args args = chat({});
    if (launched) args.insert(args.begin(), {"run", "-n", "2"});
    Terminal terminal(megalith(args), scratch_->folder());
    terminal.wait_for("/help");
    terminal.wait_for("> ");
    terminal.type("on\r");
    terminal.wait_for("ab\u00e4 ab\u00e4 ");
    terminal.type("\x03");
    EXPECT_EQ(terminal.wait_for("> ", 20).find("context of"), std::string::npos) << "it ended before it was full";
    terminal.type("/nothing\r");
    terminal.wait_for("/nothing is not a command");
    terminal.wait_for("> ");
    terminal.type("/reset\r");
    terminal.wait_for("A new conversation.");
    terminal.wait_for("> ");
    terminal.type("/system Be short.\r");
    terminal.wait_for("A new conversation.");
    terminal.wait_for("> ");
    terminal.type("/system\r");
    terminal.wait_for("> ");
    terminal.type("name?\r");
    terminal.wait_for("Ada.\r\n");
    terminal.wait_for("> ");
    terminal.type("half a li\x03");
    terminal.wait_for("Ctrl-D the program");
    terminal.wait_for("> ");
    terminal.type("\x04");
    EXPECT_EQ(terminal.wait(20), 0) << terminal.shown();
  }
}

TEST_F(Chat, AFullContextIsSaidAndTheOldestMessagesAreForgotten) {
  write_file(*scratch_ / "endless", "on\nname?\n");
  const Result found = run(megalith(chat({})), scratch_->folder(), 60, "exec < endless");
  EXPECT_NE(found.err.find("The context of 600 tokens is full, so the answer ends here."), std::string::npos)
      << found.text();
  EXPECT_NE(found.err.find("The context of 600 tokens is full: the oldest 2 messages are dropped"), std::string::npos);
  EXPECT_TRUE(found.out.ends_with("Ada.\n")) << found.out;
  write_file(*scratch_ / "long", std::string(700, 'x') + "\nname?\n");
  const Result refused = run(megalith(chat({})), scratch_->folder(), 60, "exec < long");
  EXPECT_NE(refused.err.find("but the context is 600"), std::string::npos) << refused.text();
  EXPECT_EQ(refused.out, "Ada.\n") << "the conversation goes on";
}

TEST_F(Chat, WhatCannotBeIsRefused) {
  const auto refused = [&](const Args& more) {
    Args args{"chat", "run"};
    args.insert(args.end(), more.begin(), more.end());
    const Result result = run(megalith(args), scratch_->folder());
    EXPECT_EQ(result.status, 1) << result.text();
    return result.err;
  };
  const std::string unknown = refused({"--template", "none"});
  EXPECT_NE(unknown.find("chatml, llama3, mistral, zephyr, plain"), std::string::npos) << unknown;
  write_file(*scratch_ / "own.json", "{\"user\": {\"before\": \"U\"}, \"assistant\": {\"end\": \".\"}}");
  const std::string system = refused({"--template", "own.json", "--system", "Be short."});
  EXPECT_NE(system.find("has no system message"), std::string::npos) << system;
}

}  // namespace
}  // namespace megalith::e2e
