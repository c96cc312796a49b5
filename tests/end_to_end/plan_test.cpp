// megalith plan, and what it knows of machines: every recipe, memory as in a run, this machine measured and calibrated
// on a run of its own.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/end_to_end/helpers.h"
#include "tests/end_to_end/process.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

TEST(Plan, every_recipe) {
  const Scratch scratch;
  int recipes = 0;
  for (const auto& entry : fs::directory_iterator(MEGALITH_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".toml") continue;
    recipes++;
    const bool of_cluster = read_file(entry.path()).find("[hardware]") != std::string::npos;
    for (const char* ranks : {"1", "2", "8"}) {
      // These have a vocabulary once there is a tokenizer, or a model to start from.
      Args args{"plan", entry.path(), "--ranks", ranks};
      if (std::set<std::string>{"quickstart", "finetune", "lora"}.contains(entry.path().stem()))
        args.push_back("model.vocab=4096");
      if (of_cluster) args = {"plan", entry.path()};
      const Result result = run(megalith(args), scratch.folder());
      EXPECT_EQ(result.status, 0) << entry.path() << result.text();
      for (const char* word : {"parameters", "optimizer", "gradients", "saved", "scratch", "communication", "FLOPs",
                               "transfers: all match and drain"})
        EXPECT_NE(result.out.find(word), std::string::npos) << word << ": " << result.text();
      EXPECT_LT(result.seconds, of_cluster ? 30 : 5);
      if (!of_cluster) continue;
      for (const char* word : {"predicted:", "MFU", ": fits, "})
        EXPECT_NE(result.out.find(word), std::string::npos) << word << ": " << result.text();
      break;
    }
  }
  EXPECT_GE(recipes, 10);
}

// Ctrl-C ends a search with what it has found, which is also in the file; after ten seconds a line says how far it is.
TEST(Search, EndsWithTheFastestSoFar) {
  const Scratch scratch;
  Process process(megalith({"search", "60b_p4d", "--write", "fastest.toml"}), scratch.folder());
  const auto has_told = [&] { return process.seconds() > 12 && fs::exists(scratch / "fastest.toml"); };
  while (process.running() && process.seconds() < 60 && !has_told()) sleep_for(0.1);
  ::kill(process.pid(), SIGINT);
  const Result ended = process.wait(60);
  EXPECT_EQ(ended.status, 128 + SIGINT) << ended.text();
  EXPECT_NE(ended.err.find(" %  "), std::string::npos) << ended.text();
  EXPECT_NE(ended.err.find(" tried  best "), std::string::npos) << ended.text();
  EXPECT_NE(ended.out.find("ended early: "), std::string::npos) << ended.text();
  EXPECT_NE(ended.out.find("s/step"), std::string::npos) << ended.text();
  const Result planned = run(megalith({"plan", "fastest.toml"}), scratch.folder());
  EXPECT_EQ(planned.status, 0) << planned.text();
}

// 256 ranks of a model of 30 billion parameters, on whatever machine this is.
TEST(Plan, thirty_billion_on_256_ranks) {
  const Scratch scratch;
  write_file(scratch / "config.toml",
             "[model]\nlayers = 60\nhidden = 6400\nheads = 50\nvocab = 50257\ncontext = 2048\n"
             "[batch]\nglobal_batch_size = 512\nmicrobatch_size = 1\n[memory]\nactivation_checkpointing = \"each\"\n"
             "[precision]\ncompute = \"bf16\"\n");
  for (const char* degree : {"0", "16"}) {
    const Result result = succeed(megalith({"plan", "config.toml", "--ranks", "256",
                                            fmt::format("parallel.sharded_data_parallel_degree={}", degree)}),
                                  scratch);
    EXPECT_LT(result.seconds, 5);
    EXPECT_NE(result.out.find("256 ranks"), std::string::npos) << result.text();
    EXPECT_NE(result.out.find("all match and drain"), std::string::npos) << result.text();
    fmt::print("  degree {}: {:.2f} s\n", degree, result.seconds);
  }
}

// What `plan` says a rank will need is what the run takes.
TEST(Plan, memory_is_that_of_the_run) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  const Args overrides{"batch.microbatch_size=1", "memory.activation_checkpointing=each"};
  Args args{"plan", "config.toml", "--ranks", "3"};
  args.insert(args.end(), overrides.begin(), overrides.end());
  const Result planned = succeed(megalith(args), scratch);
  train(scratch.folder(), 3, overrides);
  const nlohmann::json start = read_starts(scratch / "run").front();
  for (const auto& [memory, bytes] : start.at("memory_bytes").items()) {
    const std::string line = fmt::format("  {:<14} {:>16} bytes", memory, bytes.get<int64_t>());
    EXPECT_NE(planned.out.find(line), std::string::npos) << line << " is not in " << planned.text();
  }
}

// The most memory that each rank had resident, in bytes, of a command that is run to its end.
std::vector<int64_t> peaks_of_ranks(const Args& command, const Scratch& scratch) {
  std::map<pid_t, int64_t> peaks;
  Process process(command, scratch.folder());
  while (process.running()) {
    for (const pid_t rank : Process::ranks()) {
      std::ifstream status(fmt::format("/proc/{}/status", rank));
      for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:")) peaks[rank] = std::stoll(line.substr(6)) << 10;
    }
    sleep_for(0.005);
  }
  const Result result = process.wait();
  EXPECT_EQ(result.status, 0) << result.text();
  std::vector<int64_t> found;
  for (const auto& [rank, peak] : peaks) found.push_back(peak);
  return found;
}

// On the CPU a rank takes what is planned for tensors, program, heap, sums and saves, to within 16 MiB: what the system
// counts as the most that was resident. On two ranks sums take memory, and so do the libraries of MPI.
TEST(Plan, memory_of_a_rank_is_what_its_process_takes) {
  const Scratch scratch;
  std::string tokens(400'000, '\0');
  for (size_t i = 0; i < tokens.size(); i += 2) {
    tokens[i] = static_cast<char>(i * 37 / 11);
    tokens[i + 1] = static_cast<char>(i / 7 % 16);
  }
  write_file(scratch / "train.bin", tokens);
  write_file(scratch / "config.toml",
             "[model]\nlayers = 4\nhidden = 256\nheads = 4\nvocab = 4096\ncontext = 128\n"
             "[data]\ntrain = \"train.bin\"\n[batch]\nsequence_length = 128\nglobal_batch_size = 4\n"
             "microbatch_size = 2\n[train]\nsteps = 6\n[checkpoint]\nevery = 2\n[run]\ndevice = \"cpu\"\n");
  for (const int ranks : {1, 2}) {
    const std::string output = fmt::format("run{}", ranks);
    const Args args{"train", "config.toml", "run.output=" + output};
    const std::vector<int64_t> peaks = peaks_of_ranks(ranks == 1 ? megalith(args) : mpirun(ranks, args), scratch);
    ASSERT_EQ(peaks.size(), static_cast<size_t>(ranks));
    const nlohmann::json start = read_starts(scratch / output).front();
    int64_t planned = 0;
    for (const char* place : {"memory_bytes", "host_memory_bytes", "process_memory_bytes"})
      for (const auto& [name, bytes] : start.at(place).items()) planned += bytes.get<int64_t>();
    for (const int64_t peak : peaks)
      EXPECT_NEAR(static_cast<double>(peak), static_cast<double>(planned), 16 << 20)
          << ranks << " ranks: " << start << read_file(scratch / output + "/log.txt");
    if (ranks == 1) continue;
    const Result result = succeed(megalith({"plan", "config.toml", "--ranks", "2"}), scratch);
    for (const char* name : {"program", "sums", "save buffers", "MPI"}) {
      const int64_t bytes = start.at("process_memory_bytes").at(name);
      EXPECT_GT(bytes, 0) << name;
      EXPECT_NE(result.out.find(fmt::format("  {:<14} {:>16} bytes", name, bytes)), std::string::npos)
          << name << ": " << result.text();
    }
  }
}

// A run on this machine, measured a moment before: its time is predicted, badly as it may be on a busy machine.
TEST(Plan, this_machine_and_a_run_on_it) {
  const Scratch scratch;
  const Result alone = succeed(megalith({"measure"}), scratch);
  for (const char* word : {"1 rank of", "as is the link, since there was one rank", "[device]"})
    EXPECT_NE(alone.out.find(word), std::string::npos) << alone.text();
  succeed(mpirun(2, {"measure", "--write", "this.toml"}), scratch);
  const Args model{"hardware.profile=this.toml", "model.vocab=300", "model.layers=2", "model.hidden=64"};
  Args args{"plan", MEGALITH_SOURCE_DIR "/configs/quickstart.toml", "--ranks", "2"};
  args.insert(args.end(), model.begin(), model.end());
  const Result planned = succeed(megalith(args), scratch);
  for (const char* word : {"predicted:", "GEMM", ": fits, "})
    EXPECT_NE(planned.out.find(word), std::string::npos) << planned.text();

  write_file(scratch / "text.txt", std::string(5000, 'x'));
  succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--out", "data"}), scratch);
  args = {"train",
          args[1],
          "data.train=data/train.bin",
          "data.validation=",
          "data.tokenizer=",
          "train.steps=6",
          "optimizer.warmup_steps=1",
          "run.output=run",
          "batch.sequence_length=64",
          "train.evaluate_every=0"};
  args.insert(args.end(), model.begin(), model.end());
  succeed(mpirun(2, args), scratch);
  const Result fitted =
      succeed(megalith({"plan", "--calibrate", "run", "--fit", "calibrated.gemm", "--json", "out"}), scratch);
  const nlohmann::json out = nlohmann::json::parse(read_file(scratch / "out"));
  EXPECT_GT(out["runs"][0]["measured"].get<double>(), 0) << fitted.text();
  EXPECT_GT(out["runs"][0]["predicted"].get<double>(), 0) << fitted.text();
  EXPECT_EQ(out["fitted"][0]["key"], "calibrated.gemm");
}

}  // namespace
}  // namespace megalith::e2e
