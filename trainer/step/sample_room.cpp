#include "trainer/step/sample_room.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "data/corpus/prompts.h"
#include "kernels/system/files.h"

namespace megalith {

namespace {

constexpr int64_t most_at_once = 8;
constexpr int64_t frame = 8;  // tokens that a tokenizer may add before a text

}  // namespace

// In a list each string ends with a newline.
bool names_prompt_file(const std::string& said) { return !said.empty() && said.find('\n') == std::string::npos; }

std::vector<std::string> sample_prompts(const TrainConfig& config) {
  const std::string& said = config.sample_prompts;
  if (said.empty()) return {""};
  if (names_prompt_file(said)) {
    CHECK(std::filesystem::exists(said),
          "train.sample_prompts = {}: there is no such file; write a prompt as a list: train.sample_prompts = [\"{}\"]",
          said, said);
    return prompts_of(read_file(said), said);
  }
  std::vector<std::string> prompts;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) prompts.push_back(line);
  return prompts;
}

SampleRoom sample_room(const Config& config) {
  if (config.train.sample_every == 0) return {};
  const std::vector<std::string> prompts = sample_prompts(config.train);
  size_t longest = 0;
  for (const std::string& prompt : prompts) longest = std::max(longest, prompt.size());
  return {
      .texts = std::min(most_at_once, static_cast<int64_t>(prompts.size())),
      .positions = std::min(config.model.context, frame + static_cast<int64_t>(longest) + config.train.sample_tokens)};
}

}  // namespace megalith
