// Where a run's time and memory went, as metrics.jsonl and log.txt tell it, and the trace of some of its steps.
#include <fmt/format.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "tests/end_to_end/helpers.h"
#include "tests/trace_faults.h"

namespace megalith::e2e {
namespace {

const std::string config_of_account =
    "[model]\nlayers = 4\nhidden = 96\nheads = 4\ncontext = 64\n"
    "[data]\ntrain = \"data/train.bin\"\nvalidation = \"data/validation.bin\"\n"
    "[batch]\nglobal_batch_size = 16\nmicrobatch_size = 2\n"
    "[train]\nsteps = 6\nevaluate_every = 3\nevaluate_batches = 1\n"
    "[checkpoint]\nevery = 3\n[run]\noutput = \"run\"\n";

class Account : public testing::Test {
 protected:
  Account() {
    std::string text;
    for (int i = 0; i < 400; i++) text += fmt::format("{} bottles of beer on the wall. ", 400 - i);
    write_file(scratch_ / "text.txt", text);
    write_file(scratch_ / "config.toml", config_of_account);
    succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--out", "data", "--validation", "0.1"}),
            scratch_);
  }
  std::vector<nlohmann::json> steps() const {
    std::vector<nlohmann::json> found;
    for (const nlohmann::json& line : read_metrics(scratch_ / "run"))
      if (line.contains("step_seconds")) found.push_back(line);
    return found;
  }
  static double sum(const nlohmann::json& object) {
    return std::accumulate(object.begin(), object.end(), 0.0,
                           [](double sum, const nlohmann::json& value) { return sum + value.get<double>(); });
  }
  const Scratch scratch_;
};

TEST_F(Account, adds_up_to_every_step) {
  train(scratch_.folder(), 2, {"parallel.sharding_strategy=full_shard", "checkpoint.asynchronous=false"});
  const std::vector<nlohmann::json> found = steps();
  ASSERT_EQ(found.size(), 6u);
  const double planned = sum(read_starts(scratch_ / "run").at(0).at("memory_bytes"));
  double elsewhere = 1, so_far = 0;
  for (const nlohmann::json& line : found) {
    const nlohmann::json& time = line.at("time");
    const double between = time.value("evaluation", 0.0) + time.value("checkpoint", 0.0);
    EXPECT_EQ(between > 0, line["step"] == 4) << "between steps 3 and 4 the run was evaluated and saved: " << line;
    const double seconds = line["step_seconds"];
    EXPECT_NEAR((sum(time) - between) / seconds, 1, 1e-9) << line;
    so_far += sum(time);
    EXPECT_LE(so_far, line["seconds_since_start"]) << "nothing is counted twice";
    elsewhere = std::min(elsewhere, time.value("elsewhere", 0.0) / seconds);
    for (const char* name : {"GEMM", "attention", "elementwise", "optimizer", "gathers", "scatters", "input"})
      EXPECT_GT(time.value(name, 0.0), 0) << name;
    for (const char* name : {"tensor-parallel sums", "sums over copies", "host copies", "launches"})
      EXPECT_FALSE(time.contains(name)) << name;
    EXPECT_TRUE(line["slowest_rank"] == 0 || line["slowest_rank"] == 1);
    const nlohmann::json& memory = line.at("memory_measured");
    EXPECT_EQ(memory["host"], 0);
    EXPECT_GT(memory["resident"].get<double>(), memory["device"].get<double>());
    // Before the first evaluation and the end of the first step, not all is taken that is planned.
    EXPECT_LE(memory["device"].get<double>(), planned);
    EXPECT_GT(memory["device"].get<double>(), 0.9 * planned);
  }
  EXPECT_EQ(found.back()["memory_measured"]["device"], planned);
  EXPECT_LT(elsewhere, 0.05) << "what is not named is little";
  const std::string log = read_file(scratch_ / "run/log.txt");
  EXPECT_EQ(count(log, "where the time went, "), 1u) << log;
  EXPECT_NE(log.find("mean of 2 ranks: "), std::string::npos) << log;
}

// The last evaluation and checkpoint come after the last step.
TEST_F(Account, the_log_and_the_report_agree_on_where_the_time_went) {
  train(scratch_.folder(), 1, {"train.steps=3", "checkpoint.asynchronous=false"});
  double seconds = 0;
  for (const nlohmann::json& line : read_metrics(scratch_ / "run"))
    if (line.contains("time")) seconds += sum(line.at("time"));
  for (const nlohmann::json& time : read_times_after(scratch_ / "run")) seconds += sum(time);
  const std::string log = read_file(scratch_ / "run/log.txt"), begin = "where the time went, ";
  const size_t at = log.find(begin);
  ASSERT_NE(at, std::string::npos) << log;
  const std::string line = log.substr(at, log.find('\n', at) - at);
  EXPECT_TRUE(line.starts_with(begin + fmt::format("{:.4g} s: ", seconds))) << line << ", and " << seconds;

  succeed(megalith({"report", "run", "--out", "page.html"}), scratch_);
  const std::string page = read_file(scratch_ / "page.html"), open = "id=\"data\">";
  const size_t data = page.find(open) + open.size();
  const nlohmann::json layers =
      nlohmann::json::parse(page.substr(data, page.find("</script>", data) - data)).at("time").at(0).at("layers");
  size_t named = 0;
  for (const nlohmann::json& layer : layers) {
    if (layer.at("name") == "all else") continue;
    const std::string share =
        fmt::format("{} {:.1f} %", layer.at("name").get<std::string>(), 100 * layer.at("share").get<double>());
    EXPECT_NE(line.find(share), std::string::npos) << share << " is not in: " << line;
    named += layer.at("name") == "evaluation" || layer.at("name") == "checkpoint";
  }
  EXPECT_EQ(named, 2u) << layers;
}

// The stage with more layers is the one that the others wait for.
TEST_F(Account, tells_the_slowest_rank_and_the_bubble) {
  const Args pipeline{"parallel.pipeline_parallel_degree=2", "train.steps=5", "train.evaluate_every=0",
                      "checkpoint.every=0"};
  for (const int heavy : {0, 1}) {
    Args args = pipeline;
    args.insert(args.end(), {heavy == 0 ? "parallel.layers_per_stage=7 1" : "parallel.layers_per_stage=1 7",
                             "model.layers=8", fmt::format("run.output=run{}", heavy)});
    train(scratch_.folder(), 2, args);
    int found = 0;
    for (const nlohmann::json& line : read_metrics(scratch_ / fmt::format("run{}", heavy)))
      if (line.contains("time")) {
        found += line["slowest_rank"] == heavy;
        EXPECT_GT(line["time"]["bubble"].get<double>(), 0.15 * line["step_seconds"].get<double>()) << line;
      }
    EXPECT_GE(found, 4) << "stage " << heavy << " has seven layers of eight";
  }
}

TEST_F(Account, a_trace_has_every_rank_and_the_prediction) {
  const Result result =
      train(scratch_.folder(), 4,
            {"parallel.pipeline_parallel_degree=2", "parallel.tensor_parallel_degree=2", "train.trace_steps=2-3",
             std::string("hardware.profile=") + MEGALITH_SOURCE_DIR "/configs/hardware/p4d.24xlarge.toml"});
  EXPECT_NE(result.out.find("run/trace-2-3.json, with the plan's prediction"), std::string::npos) << result.text();
  const nlohmann::json trace = nlohmann::json::parse(read_file(scratch_ / "run/trace-2-3.json"));
  EXPECT_EQ(test::trace_faults(trace), std::vector<std::string>{});

  std::map<int64_t, std::string> processes;
  std::map<std::pair<int64_t, int64_t>, std::string> tracks;
  std::map<int64_t, std::map<std::string, double>> time;  // by process and account, of spans outside of all others
  std::map<int64_t, std::map<std::string, int>> names;    // by process
  std::map<int64_t, std::map<std::string, int>> ops;      // the same of ops and of waits for tensor-parallel sums
  std::map<int64_t, int> stage_waits;                     // a prediction names them otherwise
  std::map<int64_t, double> step_seconds;
  for (const nlohmann::json& e : trace["traceEvents"]) {
    if (e["name"] == "process_name") processes[e["pid"]] = e["args"]["name"];
    if (e["name"] == "thread_name") tracks[{e["pid"], e["tid"]}] = e["args"]["name"];
    if (e["ph"] != "X") continue;
    const std::string name = e["name"];
    names[e["pid"]][name]++;
    const bool waits_for_stages = name == "wait: bubble" || name == "wait: messages" || name == "wait: launches";
    if (waits_for_stages) stage_waits[e["pid"]]++;
    if (e["tid"] == 0 && !waits_for_stages && !name.starts_with("step ") && name != "elsewhere") ops[e["pid"]][name]++;
    if (name.starts_with("step "))
      step_seconds[e["pid"]] += e["dur"].get<double>() * 1e-6;
    else if (e["tid"] == 0)
      time[e["pid"]][e["cat"]] += e["dur"].get<double>() * 1e-6;
  }
  ASSERT_EQ(processes.size(), 6u) << "four ranks, two predicted stages";
  for (int64_t rank = 0; rank < 4; rank++) {
    EXPECT_TRUE(processes[rank].starts_with(fmt::format("rank {} (", rank))) << processes[rank];
    EXPECT_EQ(names[rank]["step 2"] + names[rank]["step 3"], 2);
    EXPECT_GT(names[rank]["attention_forward"], 0);
    std::set<std::string> lanes;
    for (const auto& [track, name] : tracks)
      if (track.first == rank) lanes.insert(name);
    for (const char* lane : {"compute", "tensor", "pipeline forward", "pipeline backward", "world"})
      EXPECT_TRUE(lanes.contains(lane)) << "rank " << rank << " has no track " << lane;
    double accounted = 0;
    for (const auto& [account, seconds] : time[rank]) accounted += seconds;
    EXPECT_LE(accounted, step_seconds[rank] * 1.001);
  }
  for (int64_t stage = 0; stage < 2; stage++) {
    EXPECT_EQ(processes[4 + stage], fmt::format("predicted, stage {}", stage));
    EXPECT_GT(ops[4 + stage].size(), 10u);
    EXPECT_GT(ops[4 + stage]["wait: tensor-parallel sums"], 0);
    EXPECT_EQ(ops[4 + stage], ops[2 * stage]) << "every op of as many steps";
    EXPECT_GT(stage_waits[2 * stage], 0);
  }
  // The same steps as in the metrics, by the same names; setting the clocks is a part of the first.
  std::map<std::string, double> told;
  for (const nlohmann::json& line : steps()) {
    const double between = line["time"].value("evaluation", 0.0) + line["time"].value("checkpoint", 0.0);
    EXPECT_NEAR((sum(line["time"]) - between) / line["step_seconds"].get<double>(), 1, 1e-9) << line;
    if (line["step"] == 2 || line["step"] == 3)
      for (const auto& [name, seconds] : line["time"].items()) told[name] += seconds.get<double>();
  }
  for (const char* name : {"GEMM", "attention", "elementwise"}) {
    double in_trace = 0;
    for (int64_t rank = 0; rank < 4; rank++) in_trace += time[rank][name] / 4;
    EXPECT_NEAR(in_trace / told[name], 1, 0.01) << name;
  }
}

TEST_F(Account, a_trace_without_machines_says_so) {
  const Result result = train(scratch_.folder(), 1, {"train.trace_steps=2", "train.steps=3", "checkpoint.every=0"});
  EXPECT_NE(result.out.find("without a prediction: hardware.profile is empty"), std::string::npos) << result.text();
  const nlohmann::json trace = nlohmann::json::parse(read_file(scratch_ / "run/trace-2.json"));
  EXPECT_EQ(test::trace_faults(trace), std::vector<std::string>{});
  const Result wrong = run(megalith({"train", "config.toml", "train.trace_steps=5-9"}), scratch_.folder());
  EXPECT_NE(wrong.status, 0);
  EXPECT_NE(wrong.err.find("train.trace_steps = \"5-9\" is beyond train.steps = 6"), std::string::npos) << wrong.text();
}

}  // namespace
}  // namespace megalith::e2e
