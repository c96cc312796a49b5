#include "tests/end_to_end/helpers.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/end_to_end/reference_tensors.h"

namespace megalith::e2e {

namespace fs = std::filesystem;

Scratch::Scratch() {
  root_ = (fs::temp_directory_path() / "megalith-e2e-XXXXXX").string();
  if (!::mkdtemp(root_.data())) throw std::runtime_error("cannot make " + root_);
  folder_ = root_ + "/work";
  fs::create_directory(folder_);
}

Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

void write_file(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

size_t count(const std::string& text, const std::string& words) {
  size_t n = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) n++;
  return n;
}

void flip_byte(const std::string& path, size_t position) {
  std::string bytes = read_file(path);
  bytes.at(position) = static_cast<char>(bytes.at(position) ^ 0x10);
  write_file(path, bytes);
}

std::map<std::string, std::string> snapshot(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder).string();
    if (entry.is_directory())
      all[name + "/"] = "";
    else
      all[name] = entry.is_regular_file() ? read_file(entry.path()) : "";
  }
  return all;
}

namespace {
constexpr const char *start_key = "start", *time_after_key = "time_after";

// Returns the values of a key that is alone on its lines, or the lines without such a key.
std::vector<nlohmann::json> lines_of_metrics(const std::string& run_folder, const char* key = nullptr) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(run_folder + "/metrics.jsonl");
  for (std::string line; std::getline(in, line);)
    if (const auto object = nlohmann::json::parse(line);
        key ? object.contains(key) : !object.contains(start_key) && !object.contains(time_after_key))
      lines.push_back(key ? object.at(key) : object);
  return lines;
}
}  // namespace

std::vector<nlohmann::json> read_metrics(const std::string& run_folder) { return lines_of_metrics(run_folder); }
std::vector<nlohmann::json> read_starts(const std::string& run_folder) {
  return lines_of_metrics(run_folder, start_key);
}
std::vector<nlohmann::json> read_times_after(const std::string& run_folder) {
  return lines_of_metrics(run_folder, time_after_key);
}

std::vector<Step> read_steps(const std::string& run_folder) {
  std::vector<Step> steps;
  for (const nlohmann::json& line : read_metrics(run_folder))
    if (line.contains("loss"))
      steps.push_back({line.at("step"), line.at("loss"), line.at("grad_norm"), line.at("learning_rate")});
  return steps;
}

std::string reference(const std::string& name) {
  return place("MEGALITH_REFERENCE", MEGALITH_SOURCE_DIR "/../shared/reference") + "/" + name;
}

std::string write_reference_config(const std::string& path, const std::string& reference_folder,
                                   const std::string& init_from) {
  const nlohmann::json r = nlohmann::json::parse(read_file(reference_folder + "/reference.json")).at("recipe");
  const auto n = [&](const char* key) { return r.at(key).get<int64_t>(); };
  const auto x = [&](const char* key) { return fmt::format("{:e}", r.at(key).get<double>()); };
  write_file(
      path,
      fmt::format("[model]\nlayers = {}\nhidden = {}\nheads = {}\nvocab = {}\ncontext = {}\n"
                  "[data]\ntrain = \"{}/tokens.bin\"\nshuffle = false\n"
                  "[batch]\nsequence_length = {}\nglobal_batch_size = {}\nmicrobatch_size = {}\n"
                  "[precision]\ncompute = \"fp32\"\n"
                  "[optimizer]\nlearning_rate = {}\nmin_learning_rate = {}\nwarmup_steps = {}\n"
                  "decay = \"cosine\"\ndecay_steps = {}\nbeta1 = {}\nbeta2 = {}\nepsilon = {}\n"
                  "weight_decay = {}\ngradient_clip = {}\n"
                  "[train]\nlog_every = 1\nsteps = {}\n[checkpoint]\ninit_from = \"{}\"\n[run]\noutput = \"run\"\n",
                  n("layers"), n("hidden"), n("heads"), n("vocab"), n("context"), reference_folder, n("seq"),
                  n("batch") * n("accum"), n("batch"), x("lr"), x("min_lr"), n("warmup"), n("decay_steps"), x("beta1"),
                  x("beta2"), x("eps"), x("weight_decay"), x("clip"), n("steps"), init_from));
  return path;
}

Result succeed(const Args& command, const Scratch& scratch) {
  const Result result = run(command, scratch.folder());
  EXPECT_EQ(result.status, 0) << result.text();
  return result;
}

Result train(const std::string& folder, int ranks, const Args& overrides) {
  Args args{"train", "config.toml"};
  args.insert(args.end(), overrides.begin(), overrides.end());
  const Result result = run(mpirun(ranks, args), folder);
  EXPECT_EQ(result.status, 0) << result.text();
  return result;
}

void expect_refused(const Args& command, const Scratch& scratch, const Args& words) {
  const auto before = snapshot(scratch.folder());
  const Result result = run(command, scratch.folder());
  EXPECT_FALSE(result.timed_out);
  EXPECT_GT(result.status, 0) << result.text();
  EXPECT_LT(result.status, 128) << "ended by a signal: " << result.text();
  EXPECT_LT(result.seconds, 5) << result.text();
  for (const std::string& word : words)
    EXPECT_NE(result.err.find(word), std::string::npos) << "\"" << word << "\" is missing: " << result.text();
  EXPECT_EQ(count(result.err, "megalith: "), 1u) << result.text();
  EXPECT_TRUE(snapshot(scratch.folder()) == before) << "something was written";
  EXPECT_TRUE(Process::ranks_end(5 - result.seconds)) << "a rank lives on";
}

Weights read_weights(const std::string& path) {
  const std::string bytes = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const auto json = nlohmann::json::parse(bytes.substr(8, header));
  Weights all;
  for (const auto& [key, entry] : json.items()) {
    if (key == "__metadata__") continue;
    EXPECT_EQ(entry.at("dtype"), "F32") << key;
    const size_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
    Weight weight{entry.at("shape").get<std::vector<int64_t>>(), std::vector<float>((end - begin) / 4)};
    std::memcpy(weight.values.data(), bytes.data() + 8 + header + begin, end - begin);
    const std::string prefix = "transformer.";
    all[key.starts_with(prefix) ? key.substr(prefix.size()) : key] = std::move(weight);
  }
  return all;
}

Weights exported_weights(const std::string& folder, const std::string& run_folder) {
  const std::string checkpoints = run_folder + "/checkpoints", out = run_folder + "/export";
  const std::vector<std::string> names = checkpoints_in(checkpoints);
  if (names.empty()) {
    ADD_FAILURE() << "no checkpoint in " << checkpoints;
    return {};
  }
  fs::remove_all(out);
  const Result result = run(megalith({"checkpoint", "export", checkpoints + "/" + names.back(), "--out", out}), folder);
  EXPECT_EQ(result.status, 0) << result.text();
  return result.status == 0 ? read_weights(out + "/model.safetensors") : Weights{};
}

std::vector<Step> steps_of(const nlohmann::json& reference) {
  std::vector<Step> steps;
  for (const auto& s : reference.at("steps"))
    steps.push_back({s.at("step").get<int64_t>() + 1, s.at("loss"), s.at("grad_norm"), s.at("lr")});
  return steps;
}

Course reference_course(const std::string& reference_folder) {
  Course course;
  course.steps = steps_of(nlohmann::json::parse(read_file(reference_folder + "/reference.json")));
  // The same tensors as at the beginning, with other values.
  course.weights = read_weights(reference_folder + "/model.safetensors");
  for (auto& [name, weight] : course.weights)
    weight.values = read_hdf5(reference_folder + "/reference.h5", "final/" + name);
  EXPECT_FALSE(course.weights.empty());
  return course;
}

Course course_of(const std::string& run_folder) {
  return {read_steps(run_folder), read_weights(run_folder + "/export/model.safetensors")};
}

std::string expect_same_course(const Course& found, const Course& expected) {
  double loss = 0, norm = 0, rate = 0, weights = 0;
  EXPECT_EQ(found.steps.size(), expected.steps.size());
  for (size_t i = 0; i < std::min(found.steps.size(), expected.steps.size()); i++) {
    const Step &f = found.steps[i], &e = expected.steps[i];
    EXPECT_EQ(f.step, e.step);
    loss = std::max(loss, std::abs(f.loss - e.loss));
    norm = std::max(norm, std::abs(f.grad_norm - e.grad_norm) / e.grad_norm);
    rate = std::max(rate, std::abs(f.learning_rate - e.learning_rate));
  }
  EXPECT_LT(loss, 1e-5);
  EXPECT_LT(norm, 1e-4);
  EXPECT_LT(rate, 1e-9);
  if (!expected.weights.empty()) {
    EXPECT_EQ(found.weights.size(), expected.weights.size());
  }
  for (const auto& [name, e] : expected.weights) {
    const auto at = found.weights.find(name);
    if (at == found.weights.end() || at->second.shape != e.shape) {
      ADD_FAILURE() << name << " is missing or has another shape";
      continue;
    }
    double difference = 0, sum = 0;
    for (size_t i = 0; i < e.values.size(); i++) {
      difference += std::pow(static_cast<double>(at->second.values[i]) - static_cast<double>(e.values[i]), 2);
      sum += std::pow(static_cast<double>(e.values[i]), 2);
    }
    const double error = std::sqrt(difference / sum);
    EXPECT_LT(error, 1e-3) << name;
    weights = std::max(weights, error);
  }
  return fmt::format("loss {:.1e}, gradient norm {:.1e}, learning rate {:.1e}, weights {:.1e}", loss, norm, rate,
                     weights);
}

std::vector<std::string> checkpoints_in(const std::string& directory) {
  std::vector<std::string> names;
  if (!fs::exists(directory)) return names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-") && name.find('.') == std::string::npos) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void wait_for_words(Process& process, const std::string& words) {
  for (const double start = now(); process.out().find(words) == std::string::npos; sleep_for(0.005)) {
    ASSERT_LT(now() - start, 60) << words;
    ASSERT_TRUE(process.running()) << process.wait().text();
  }
}

std::string step_name(int64_t step) { return fmt::format("step-{:08}", step); }

void expect_same_rank_files(const std::string& a, const std::string& b) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(a)) {
    if (entry.path().extension() != ".h5") continue;
    files++;
    const std::string other = b + "/" + entry.path().filename().string();
    ASSERT_TRUE(fs::exists(other)) << other;
    EXPECT_TRUE(read_file(entry.path()) == read_file(other)) << entry.path() << " and " << other << " differ";
  }
  EXPECT_GT(files, 0) << a;
}

}  // namespace megalith::e2e
