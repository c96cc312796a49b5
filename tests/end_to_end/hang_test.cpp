// Jobs that hang are ended by one message, which names the rank that is to blame and the step that it is on: ranks that
// are stopped or killed, that skip a call, make another or one of other bytes, at any place of a step of any schedule
// (tests/planted_hangs). One that is slow is named in a warning, and the job goes on.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>

#include "tests/end_to_end/helpers.h"
#include "tests/long_tests.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

struct HangLayout {
  int ranks, tensor, pipeline;
  std::string schedule = "1f1b";
  int virtual_stages = 1;
};
// The first four are those of the day.
const std::vector<HangLayout> hang_layouts{{2, 2, 1},
                                           {2, 1, 2, "zb_v", 2},
                                           {4, 2, 1},
                                           {8, 2, 2, "zb_h1"},
                                           {2, 1, 2},
                                           {2, 1, 2, "zb_h1"},
                                           {8, 2, 2, "1f1b"},
                                           {2, 1, 2, "zb_h1", 2},
                                           {8, 2, 2, "v_half", 2}};

struct PlantedHang {
  HangLayout layout;
  std::string fault;
  int rank = 0;
  int64_t step = 0, call = 0;
  double timeout = 5;  // seconds; ranks that share cores with others' tests must not take so long for a step
};

std::string text_of(const PlantedHang& p) {
  return fmt::format("{} ranks, tensor {}, pipeline {} x {} {}: rank {}: {} at call {} of step {}", p.layout.ranks,
                     p.layout.tensor, p.layout.pipeline, p.layout.virtual_stages, p.layout.schedule, p.rank, p.fault,
                     p.call, p.step);
}

Args planted(const HangLayout& layout, const std::string& folder, double timeout, int64_t steps) {
  return {folder,
          fmt::format("{:g}", timeout),
          std::to_string(layout.tensor),
          std::to_string(layout.pipeline),
          std::to_string(layout.virtual_stages),
          layout.schedule,
          std::to_string(steps)};
}

Result run_planted(const PlantedHang& p, const Scratch& scratch) {
  Args args = planted(p.layout, ".", p.timeout, p.step + 4);
  for (const std::string& more : {p.fault, std::to_string(p.rank), std::to_string(p.step), std::to_string(p.call)})
    args.push_back(more);
  Args command = mpirun(p.layout.ranks, MEGALITH_PLANTED_HANGS, args);
  // Time for the others to say who has died, before mpirun ends them. Else none: Open MPI 4's mpirun may wait for ever
  // for a rank that was stopped.
  const char* seconds = p.fault == "kill" ? "2" : "0";
  for (const char* word : {seconds, "odls_base_sigkill_timeout", "--mca"}) command.insert(command.begin() + 1, word);
  return run(command, scratch.folder(), 100);
}

std::vector<std::string> lines_with(const std::string& text, const std::string& words) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::erase(line, '\0');  // with which Open MPI 5 ends what it says of an abort
    if (line.find(words) != std::string::npos) found.push_back(line);
  }
  return found;
}

// The lines that end a job, without warnings.
std::vector<std::string> verdicts(const Result& result) {
  std::vector<std::string> found = lines_with(result.err, "megalith: ");
  std::erase_if(found, [](const std::string& line) { return line.find("megalith: warning: ") != std::string::npos; });
  return found;
}

// Says what is wrong with how a job has ended; empty: nothing.
std::string judged(const PlantedHang& p, const Result& result) {
  const std::vector<std::string> lines = verdicts(result);
  if (result.timed_out || result.status == 0) return "it did not end with an error";
  if (lines.size() != 1) return fmt::format("{} messages", lines.size());
  const std::string& line = lines.front();
  if (!line.starts_with(fmt::format("megalith: rank {} (process ", p.rank))) return "it names another rank";
  const std::map<std::string, std::string> words{
      {"stop", "is stopped"}, {"kill", "has died"}, {"skip", ""}, {"other", ""}, {"bytes", ""}};
  if (line.find(words.at(p.fault)) == std::string::npos) return "it says another cause";
  if (line.find(fmt::format("step {}", p.step)) == std::string::npos) return "it says another step";
  return "";
}

// How many calls a step of a rank has: collectives, at which any fault is planted, and all, with messages, at which a
// rank can be stopped or killed.
struct Calls {
  int64_t collectives, all;
  int64_t of(const std::string& fault) const { return fault == "stop" || fault == "kill" ? all : collectives; }
};

// Returns the calls of each rank.
std::vector<Calls> calls_of(const HangLayout& layout, const Scratch& scratch) {
  const Result result = succeed(mpirun(layout.ranks, MEGALITH_PLANTED_HANGS, planted(layout, ".", 60, 1)), scratch);
  std::vector<Calls> calls;
  for (const std::string& line : lines_with(result.out, " collectives"))
    calls.push_back({std::stoll(line.substr(line.find(": ") + 2)), std::stoll(line.substr(line.find(" of ") + 4))});
  EXPECT_EQ(calls.size(), static_cast<size_t>(layout.ranks)) << result.text();
  return calls;
}

TEST(Hang, random_faults_are_named) {
  const char* seed = std::getenv("MEGALITH_HANG_SEED");
  std::mt19937 random(seed ? static_cast<unsigned>(std::atoi(seed)) : 1u);
  const char* wish = std::getenv("MEGALITH_HANGS");
  const int64_t wanted = wish ? std::atoi(wish) : taken("Hang.random_faults_are_named");
  const std::array<std::string, 5> faults{"stop", "skip", "kill", "bytes", "other"};
  std::map<std::string, std::array<int, 3>> table;  // planted, named rightly, in time
  double slowest = 0;
  std::map<int, std::vector<Calls>> all_calls;
  int without = 0;  // went through: what came fitted by chance
  for (int i = 0; i < wanted + without; i++) {
    const Scratch scratch;
    const auto of = static_cast<size_t>(i) % hang_layouts.size();
    PlantedHang p{.layout = hang_layouts[of], .fault = faults[static_cast<size_t>(i) % faults.size()]};
    if (!all_calls.contains(static_cast<int>(of))) all_calls[static_cast<int>(of)] = calls_of(p.layout, scratch);
    p.rank = static_cast<int>(random() % static_cast<unsigned>(p.layout.ranks));
    p.step = 3 + static_cast<int64_t>(random() % 4);
    const int64_t calls = all_calls[static_cast<int>(of)][static_cast<size_t>(p.rank)].of(p.fault);
    p.call = 1 + static_cast<int64_t>(random()) % calls;
    const Result result = run_planted(p, scratch);
    if (result.status == 0) {
      ASSERT_LT(++without, 10 + wanted / 5) << text_of(p) << " and others hang nothing";
      continue;
    }
    const std::string wrong = judged(p, result);
    EXPECT_EQ(wrong, "") << text_of(p) << "\n" << result.text();
    if (!fs::exists(scratch / "planted") || !fs::exists(scratch / "log.txt")) continue;
    const double took = std::chrono::duration<double>(fs::last_write_time(scratch / "log.txt") -
                                                      fs::last_write_time(scratch / "planted"))
                            .count();
    const bool in_time = took <= p.timeout + 5;
    if (taken("Hang.in_time")) {
      EXPECT_TRUE(in_time) << text_of(p) << ": " << took << " s";
    }
    auto& [planted, named, timely] = table[fmt::format("{} ranks, {}", p.layout.ranks, p.fault)];
    planted++;
    named += wrong.empty();
    timely += in_time;
    slowest = std::max(slowest, took);
    // What the dead job has left says the same.
    const Result doctor = run(megalith({"doctor", "."}), scratch.folder());
    EXPECT_EQ(doctor.status, 0) << doctor.text();
    if (wrong.empty()) {
      EXPECT_TRUE(doctor.out.starts_with(fmt::format("rank {} (process ", p.rank))) << doctor.text();
      EXPECT_EQ(lines_with(doctor.out, "  rank ").size(), static_cast<size_t>(p.layout.ranks)) << doctor.text();
    }
  }
  for (const auto& [what, counts] : table)
    fmt::print("  {}: {} planted, {} named rightly, {} within the time-out and 5 s\n", what, counts[0], counts[1],
               counts[2]);
  fmt::print("  the longest took {:.1f} s from the fault to the message; {} faults hung nothing\n", slowest, without);
}

TEST(Hang, a_slow_rank_is_named_and_the_job_goes_on) {
  const Scratch scratch;
  const PlantedHang p{.layout = hang_layouts[2], .fault = "slow", .rank = 3, .step = 3, .call = 4};
  const Result result = run_planted(p, scratch);
  EXPECT_EQ(result.status, 0) << result.text();
  EXPECT_TRUE(verdicts(result).empty()) << result.text();
  const std::vector<std::string> warnings = lines_with(result.err, "megalith: warning: ");
  const auto named = std::ranges::find_if(warnings, [](const std::string& line) {
    return line.find(": rank 3 (process ") != std::string::npos &&
           line.find("is not waiting for others: it is computing") != std::string::npos;
  });
  ASSERT_NE(named, warnings.end()) << result.text();
  EXPECT_FALSE(lines_with(read_file(scratch / "log.txt"), "is not waiting for others").empty());
  EXPECT_FALSE(fs::exists(scratch / "calls")) << "a job that ends in order leaves nothing";
}

// The program itself: a rank is stopped from outside, at whatever it does. The message is the last word of the log,
// also where mpirun leaves the other rank the time that it does by itself, in which it asks it to end.
TEST(Hang, a_stopped_rank_of_a_run_is_named) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  Process process(mpirun(2, {"train", "config.toml", "train.steps=1000000", "train.log_every=1", "checkpoint.every=0",
                             "communication.timeout=5", "run.output=run"}),
                  scratch.folder(), "unset OMPI_MCA_odls_base_sigkill_timeout PRTE_MCA_odls_base_sigkill_timeout");
  const double start = now();
  while (process.out().find("\nstep 3/") == std::string::npos) {
    ASSERT_LT(now() - start, 100) << process.out();
    sleep_for(0.01);
  }
  const std::vector<pid_t> ranks = Process::ranks();
  ASSERT_EQ(ranks.size(), 2u);
  const double stopped = now();
  ::kill(ranks[1], SIGSTOP);
  const Result result = process.wait(60);
  EXPECT_LT(now() - stopped, 5 + 30);
  EXPECT_NE(result.status, 0);
  EXPECT_TRUE(Process::ranks_end(10));
  const std::vector<std::string> lines = verdicts(result);
  ASSERT_EQ(lines.size(), 1u) << result.text();
  EXPECT_NE(lines.front().find(fmt::format("(process {} on ", ranks[1])), std::string::npos) << lines.front();
  EXPECT_NE(lines.front().find("is stopped"), std::string::npos) << lines.front();
  const std::string log = read_file(scratch / "run/log.txt");
  EXPECT_EQ(count(log, " ended: "), 1u) << log;
  EXPECT_TRUE(log.ends_with(" ended: " + lines.front().substr(std::string("megalith: ").size()) + "\n")) << log;
  const Result doctor = succeed(megalith({"doctor", "run"}), scratch);
  EXPECT_NE(doctor.out.find(fmt::format("(process {} on ", ranks[1])), std::string::npos) << doctor.out;
}

// Nobody was left to say anything: the ranks' memory still tells where they were.
TEST(Hang, of_a_job_that_was_killed_the_doctor_knows_where_it_was) {
  const Scratch scratch;
  Process process(mpirun(2, MEGALITH_PLANTED_HANGS, planted(hang_layouts[0], ".", 60, 1000000)), scratch.folder());
  const double start = now();
  while (process.out().find("rank 1: ") == std::string::npos) {
    ASSERT_LT(now() - start, 100) << process.out();
    sleep_for(0.01);
  }
  sleep_for(0.3);
  process.kill_all();
  const Result doctor = succeed(megalith({"doctor", "."}), scratch);
  EXPECT_TRUE(doctor.out.starts_with("all 2 ranks are gone, and none has reported why; their last calls:\n"))
      << doctor.out;
  for (const int rank : {0, 1})
    EXPECT_NE(doctor.out.find(fmt::format("  rank {} is on step ", rank)), std::string::npos) << doctor.out;
  // The next job in this folder removes it from memory, and leaves nothing of its own.
  succeed(mpirun(2, MEGALITH_PLANTED_HANGS, planted(hang_layouts[0], ".", 60, 1)), scratch);
  const Result nothing = run(megalith({"doctor", "."}), scratch.folder());
  EXPECT_EQ(nothing.status, 1);
  EXPECT_NE(nothing.err.find("calls has no record of a job that hung"), std::string::npos) << nothing.text();
}

}  // namespace
}  // namespace megalith::e2e
