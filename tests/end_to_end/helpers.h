// The tests of this folder share these: a folder that vanishes, a reference to train on, metrics and tensors as read
// back from the files.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/system/files.h"
#include "tests/end_to_end/process.h"
#include "tests/python.h"

namespace megalith::e2e {

class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& folder() const { return folder_; }  // where programs run; their output is kept beside it
  std::string operator/(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string root_, folder_;
};

void write_file(const std::string& path, const std::string& bytes);
size_t count(const std::string& text, const std::string& words);  // how often they stand in it
void flip_byte(const std::string& path, size_t position);

// Every file below a folder, by relative path, with what it holds; folders end in '/'.
std::map<std::string, std::string> snapshot(const std::string& folder);

// One step of metrics.jsonl. Compared bit for bit: the program writes the digits that read back to the same double.
struct Step {
  int64_t step = 0;
  double loss = 0, grad_norm = 0, learning_rate = 0;
  bool operator==(const Step&) const = default;
};
std::vector<nlohmann::json> read_metrics(const std::string& run_folder);      // the lines of steps, evaluations, texts
std::vector<nlohmann::json> read_starts(const std::string& run_folder);       // they describe each start
std::vector<nlohmann::json> read_times_after(const std::string& run_folder);  // the time after its last step
std::vector<Step> read_steps(const std::string& run_folder);                  // the lines of steps

std::string reference(const std::string& name);  // folder of ../shared/reference
#define SKIP_WITHOUT_REFERENCE() \
  if (!std::filesystem::exists(reference("tiny"))) GTEST_SKIP() << "no reference at " << reference("tiny")

// A config file for training as a reference folder's reference.json says, from its weights and tokens.
std::string write_reference_config(const std::string& path, const std::string& reference_folder,
                                   const std::string& init_from);

// Runs in the scratch folder, and is expected to succeed.
Result succeed(const Args& command, const Scratch& scratch);
// `megalith train config.toml ...` in `folder`, expected to succeed.
Result train(const std::string& folder, int ranks, const Args& overrides);

// Until its output has these words; it is expected to run until then.
void wait_for_words(Process& process, const std::string& words);

// Runs in the scratch folder, and is expected to be refused within five seconds by every rank, told once, in these
// words, with nothing written.
void expect_refused(const Args& command, const Scratch& scratch, const Args& words);

// Tensors of a model by their names in a Hugging Face GPT-2, without "transformer.".
struct Weight {
  std::vector<int64_t> shape;
  std::vector<float> values;
  bool operator==(const Weight&) const = default;
};
using Weights = std::map<std::string, Weight>;

// The plainest reader of a file model.safetensors: no code of ours stands between an export and what it is held to.
Weights read_weights(const std::string& path);
// Exports the newest checkpoint of a run, by the command line, and reads that.
Weights exported_weights(const std::string& folder, const std::string& run_folder);

// The course of a training: its steps, and the weights after the last.
struct Course {
  std::vector<Step> steps;
  Weights weights;
};
std::vector<Step> steps_of(const nlohmann::json& reference);   // as the file reference.json says they must be
Course reference_course(const std::string& reference_folder);  // the same with the weights
Course course_of(const std::string& run_folder);               // of a run of tests/train_several

// Expects what the reference's README demands: every loss within 1e-5, every gradient norm within 1e-4, relative,
// learning rates within 1e-9, and each tensor of the weights, where they are expected, within 1e-3 in relative norm,
// with no tensor and no row more. Returns the largest errors, in words.
std::string expect_same_course(const Course& found, const Course& expected);

// Folders step-* of a checkpoint directory, by name.
std::vector<std::string> checkpoints_in(const std::string& directory);
std::string step_name(int64_t step);

// The rank files of two checkpoints are the same bytes.
void expect_same_rank_files(const std::string& a, const std::string& b);

}  // namespace megalith::e2e
