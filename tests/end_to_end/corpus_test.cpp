// A corpus of all forms, prepared, killed with SIGKILL, and prepared on: the same bytes as without.
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <random>

#include "tests/end_to_end/helpers.h"
#include "tests/long_tests.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

// Lines of a JSON-lines file, of about so many bytes.
std::string some_lines(size_t bytes) {
  std::mt19937 random(3);
  std::vector<std::string> words;
  for (int i = 0; i < 20'000; i++) {
    std::string& word = words.emplace_back();
    for (unsigned n = 2 + random() % 9; n > 0; n--) word += static_cast<char>('a' + random() % 26);
  }
  std::string lines;
  for (int i = 0; lines.size() < bytes; i++) {
    lines += fmt::format("{{\"id\": {}, \"text\": \"", i);
    for (unsigned n = 20 + random() % 1000; n > 0; n--)
      lines += words[random() % words.size()] + (random() % 9 ? " " : "\\n");
    lines += "\"}\n";
  }
  return lines;
}

TEST(Corpus, a_killed_prepare_goes_on_to_the_same_bytes) {
  const Scratch scratch;
  const std::string lines = some_lines(48 << 20);
  write_file(scratch / "corpus/a.jsonl", lines);
  write_file(scratch / "corpus/b/c.txt", "one<|endoftext|>two");
  write_file(scratch / "small.txt", "\n" + lines.substr(0, 200'000));  // a text, whatever it looks like
  succeed(megalith({"prepare", "--text", "small.txt", "--tokenizer", "train:400", "--out", "small"}), scratch);
  const auto command = [](const std::string& out) {
    return megalith({"prepare", "--text", "corpus", "--tokenizer", "small/tokenizer", "--out", out, "--threads", "1",
                     "--shard-tokens", "8000000"});
  };
  const Result whole = succeed(command("whole"), scratch);
  EXPECT_NE(whole.out.find("most common tokens: "), std::string::npos) << whole.text();

  const std::string position = scratch / "killed/prepare.partial/position.json";
  {
    Process process(command("killed"), scratch.folder());
    const auto begun = [&] {
      return fs::exists(position) && nlohmann::json::parse(read_file(position)).at("offset") > 0;
    };
    while (process.running() && !begun()) sleep_for(0.01);
    ASSERT_TRUE(process.running()) << "it ended before it could be killed";
    EXPECT_EQ(process.kill_all().status, 128 + SIGKILL);
  }
  EXPECT_FALSE(fs::exists(scratch / "killed/tokenizer"));
  const Result rest = succeed(command("killed"), scratch);
  EXPECT_NE(rest.out.find("continued an earlier, unfinished prepare"), std::string::npos) << rest.text();
  EXPECT_TRUE(snapshot(scratch / "killed") == snapshot(scratch / "whole"));
  EXPECT_TRUE(fs::exists(scratch / "whole/train-00001.bin"));
}

// Training the tokenizer, encoding, publishing: wherever a kill or a Ctrl-C comes, the same command goes on, and ends
// in the same bytes.
TEST(Corpus, a_prepare_that_is_interrupted_at_random_is_simply_run_again) {
  const Scratch scratch;
  write_file(scratch / "corpus.jsonl", some_lines(static_cast<size_t>(taken("Corpus.bytes"))));
  const auto command = [](const std::string& out) {
    return megalith({"prepare", "--text", "corpus.jsonl", "--tokenizer", "train:400", "--out", out, "--threads", "1",
                     "--shard-tokens", "1000000"});
  };
  const Result whole = succeed(command("whole"), scratch);
  const auto want = snapshot(scratch / "whole");
  std::mt19937 random(11);
  int kills = 0, went_on = 0;
  const int64_t wanted = taken("Corpus.interruptions");
  while (kills < wanted) {
    for (int in_a_row = 0;; in_a_row++) {
      Process process(command("out"), scratch.folder());
      if (in_a_row < 6) sleep_for(whole.seconds * 1.1 * (static_cast<double>(random()) / 0x1p32));
      if (in_a_row < 6 && process.running()) ::kill(process.pid(), random() % 3 ? SIGKILL : SIGINT);
      const Result result = process.wait();
      if (result.status == 0) {
        went_on += result.out.find("went on") != std::string::npos;
        break;
      }
      if (result.status < 128) {  // it had ended, and only its process had not
        EXPECT_NE(result.err.find("exists, and nothing is overwritten"), std::string::npos) << result.text();
        break;
      }
      kills++;
    }
    ASSERT_TRUE(snapshot(scratch / "out") == want) << "after " << kills << " kills";
    fs::remove_all(scratch / "out");
  }
  fmt::print("  {} interruptions; {} last starts went on with what was there\n", kills, went_on);
  EXPECT_GE(went_on, wanted / 200) << "among few interruptions there may be none that leaves something";
}

// From a pipe, with a bad line, as the README has it.
TEST(Corpus, standard_input_and_bad_lines) {
  const Scratch scratch;
  write_file(scratch / "a.jsonl", "{\"body\": \"one\"}\n{\"body\": \"two\"}\nthree\n{\"body\": \"four\"}\n");
  const auto prepare = [&](const std::string& more) {
    return run({"sh", "-c",
                std::string("cat a.jsonl | ") + MEGALITH_PROGRAM +
                    " prepare --text - --field body --tokenizer bytes --out data --validation 0 " + more},
               scratch.folder());
  };
  const Result refused = prepare("");
  EXPECT_NE(refused.status, 0);
  for (const char* words : {"line 3 (at byte 32)", "is not JSON", "--skip-bad"})
    EXPECT_NE(refused.err.find(words), std::string::npos) << refused.text();
  EXPECT_FALSE(fs::exists(scratch / "data"));
  const Result taken = prepare("--skip-bad 1");
  EXPECT_EQ(taken.status, 0) << taken.text();
  for (const char* words : {"13 training tokens of 3 documents", "left out 1 bad document;", "line 3"})
    EXPECT_NE(taken.out.find(words), std::string::npos) << taken.text();
}

}  // namespace
}  // namespace megalith::e2e
