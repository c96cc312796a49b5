// Bad input gets an error before anything is done, within five seconds, once, that names the object, the numbers
// and the remedy; and nothing that exists is overwritten.
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/end_to_end/bad_input_cases.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

// Makes a finished run in run/, a config for it, and files that are wrong in one way each.
void prepare_bad_inputs(const Scratch& scratch) {
  const std::string tiny = reference("tiny"), tokens = read_file(tiny + "/tokens.bin");
  write_reference_config(scratch / "config.toml", tiny, "");
  train(scratch.folder(), 1, {"train.steps=2", "checkpoint.every=1"});
  write_file(scratch / "empty.bin", "");
  write_file(scratch / "odd.bin", tokens.substr(0, 1001));
  write_file(scratch / "short.bin", tokens.substr(0, 20));
  write_file(scratch / "plain.txt", "a text\n");
  write_file(scratch / "book.txt", std::string(200, 'a') + "\n");
  write_file(scratch / "empty.txt", "");
  std::string llmc(1024, '\0');
  const int32_t header[] = {20240520, 1, 5000};
  llmc.replace(0, sizeof header, reinterpret_cast<const char*>(header), sizeof header);
  write_file(scratch / "llmc.bin", llmc + tokens.substr(0, 400));
  write_file(scratch / "pair/train.bin", tokens);
  for (const char* name : {"two/a.bin", "two/b.bin"}) write_file(scratch / name, tokens);
  write_file(scratch / "pair/train.idx", std::string("MMIDIDX\0\0", 9) + std::string(30, '\x01'));
  fs::create_directory(scratch / "no_tokenizer");
  ASSERT_EQ(::mkfifo((scratch / "pipe.bin").c_str(), 0600), 0);
  fs::create_directory(scratch / "renamed");
  fs::copy(scratch / "run/checkpoints/step-00000002", scratch / "renamed/step-00000009", fs::copy_options::recursive);
  write_file(scratch / "many_layers/config.json",
             R"({"n_layer": 100000000, "n_embd": 64, "n_head": 4, "vocab_size": 257, "n_positions": 32})");
  fs::create_directory(scratch / "damaged");
  fs::copy(scratch / "run/checkpoints/step-00000002", scratch / "damaged/step-00000002", fs::copy_options::recursive);
  flip_byte(scratch / "damaged/step-00000002/manifest.json", 500);
  fs::copy(tiny, scratch / "hf_damaged", fs::copy_options::recursive);
  fs::permissions(scratch / "hf_damaged/model.safetensors", fs::perms::owner_all);
  fs::resize_file(scratch / "hf_damaged/model.safetensors", 100000);
  const Result prepared =
      run(megalith({"prepare", "--text", "plain.txt", "--tokenizer", "bytes", "--out", "data"}), scratch.folder());
  ASSERT_EQ(prepared.status, 0) << prepared.text();
}

void check(const BadInputCase& c, const Result& result) {
  SCOPED_TRACE(c.name);
  EXPECT_GT(result.status, 0) << result.text();
  EXPECT_LT(result.status, 128) << "ended by a signal: " << result.text();
  EXPECT_LT(result.seconds, 5) << result.text();
  for (const std::string& word : c.words)
    EXPECT_NE(result.err.find(word), std::string::npos) << "\"" << word << "\" is missing: " << result.text();
  const std::string first_line = result.err.substr(0, result.err.find('\n') + 1);
  EXPECT_EQ(count(result.err, c.words.front()), count(first_line, c.words.front())) << "told twice: " << result.text();
  // CLI11 speaks for itself about the command line.
  if (count(result.err, "--help") == 0) {
    EXPECT_EQ(count(result.err, "megalith: "), 1) << result.text();
  }
  EXPECT_EQ(count(result.err, ".cpp:"), 0) << "a place in our code tells a user nothing: " << result.text();
}

// The cases share a folder, since none may change it, and mostly wait for mpirun, so that several run at a time.
TEST(BadInput, is_refused) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_bad_inputs(scratch);
  if (testing::Test::HasFailure()) return;
  for (const BadInputCase& c : bad_input_cases())
    if (!c.config.empty()) write_file(scratch / (c.name + ".toml"), c.config);
  const auto before = snapshot(scratch.folder());

  constexpr size_t at_once = 4;
  std::vector<std::pair<const BadInputCase*, std::unique_ptr<Process>>> running;
  double slowest = 0;
  for (size_t next = 0; next < bad_input_cases().size() || !running.empty();) {
    while (next < bad_input_cases().size() && running.size() < at_once) {
      const BadInputCase& c = bad_input_cases()[next++];
      Args args = c.args;
      if (!c.config.empty()) args.at(1) = c.name + ".toml";
      for (std::string& arg : args)
        if (arg == "fresh") arg += "_" + c.name;  // which another case would remove meanwhile
      running.emplace_back(
          &c, std::make_unique<Process>(c.ranks == 0 ? megalith(args) : mpirun(c.ranks, args), scratch.folder()));
    }
    sleep_for(0.005);
    std::erase_if(running, [&](auto& entry) {
      auto& [c, process] = entry;
      if (process->running() && process->seconds() < 20) return false;
      const Result result = process->wait(0);
      check(*c, result);
      slowest = std::max(slowest, result.seconds);
      return true;
    });
  }
  fmt::print("  {} cases, slowest refusal {:.2f} s\n", bad_input_cases().size(), slowest);

  const auto after = snapshot(scratch.folder());
  for (const auto& [name, bytes] : before)
    EXPECT_TRUE(after.contains(name) && after.at(name) == bytes) << name << " was changed";
  for (const auto& [name, bytes] : after) EXPECT_TRUE(before.contains(name)) << name << " was left behind";
}

// The folder where ranks meet is named by the config itself, which is wrong: they meet nevertheless, and one says so.
TEST(BadInput, in_a_config_that_names_a_rendezvous_is_said_once) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  for (const auto& [text, message] : {std::pair{"[communication]\nrendezvous = \"meeting\"\n[model]\nlayer = 2\n",
                                                "megalith: wrong.toml:4: unknown key `model.layer`"},
                                      {"[communication]\nrendezvous = \"meeting\"\nbackend = \"mpi\"\n",
                                       "megalith: wrong.toml:2: communication.rendezvous = "}}) {
    write_file(scratch / "wrong.toml", text);
    std::vector<std::unique_ptr<Process>> ranks;
    for (int r = 0; r < 3; r++)
      ranks.push_back(std::make_unique<Process>(megalith({"train", "wrong.toml"}), scratch.folder(),
                                                fmt::format("export RANK={} WORLD_SIZE=3", r)));
    for (size_t r = 0; r < ranks.size(); r++) {
      const Result result = ranks[r]->wait(20);
      EXPECT_EQ(result.status, 1) << result.text();
      EXPECT_EQ(count(result.err, "megalith: "), r == 0 ? 1 : 0) << result.text();
      if (r == 0) {
        EXPECT_TRUE(result.err.starts_with(message)) << result.text();
      }
    }
  }
}

// A command that works on one rank ends as badly on all, or a launcher takes the job for a success.
TEST(BadInput, is_the_status_of_every_rank) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  train(scratch.folder(), 1, {"train.steps=1"});
  flip_byte(scratch / "run/checkpoints/step-00000001/rank-00000.h5", 300000);
  const Result result = run({MEGALITH_MPIRUN, "--oversubscribe", "-n", "3", "sh", "-c",
                             megalith({}).front() + " checkpoint verify run; echo status $?"},
                            scratch.folder(), 20);
  EXPECT_EQ(count(result.out, "DAMAGED"), 1) << result.text();
  EXPECT_EQ(count(result.out, "status 1\n"), 3) << result.text();
}

// What was asked for and could not be written is no success.
TEST(BadInput, a_full_disk_under_the_output_is_said) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  const Result result =
      run({"sh", "-c", megalith({}).front() + " plan config.toml --ranks 2 > /dev/full"}, scratch.folder());
  EXPECT_EQ(result.status, 1) << result.text();
  EXPECT_EQ(result.err, "megalith: cannot write all of the output: No space left on device; is the disk full?\n");
}

}  // namespace
}  // namespace megalith::e2e
