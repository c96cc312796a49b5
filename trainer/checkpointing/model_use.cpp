#include "trainer/checkpointing/model_use.h"

#include <algorithm>
#include <filesystem>

namespace megalith {

std::string folder_of_use(const WeightSource& weights) {
  if (is_hugging_face_folder(weights.path)) return weights.path;
  return weights.tokenizer.empty() ? "" : std::filesystem::path(weights.tokenizer).parent_path().string();
}

ModelUse use_of(const WeightSource& weights, const Tokenizer& tokenizer) {
  ModelUse use;
  const std::string folder = folder_of_use(weights);
  if (!folder.empty()) {
    use.generation = read_generation_config(folder);
    const std::string file = (std::filesystem::path(folder) / chat_template_name).string();
    if (std::error_code absent; !is_hugging_face_folder(weights.path) && std::filesystem::exists(file, absent))
      use.chat = chat_template(file);
  }
  std::vector<int32_t> ends = use.generation.ends;
  if (ends.empty()) ends.push_back(tokenizer.end_of_text());
  if (use.chat)
    if (const EndOfAnswer end = end_of_answer(*use.chat, tokenizer); end.is_one_token)
      use.ends.push_back(end.ids.front());
  for (const int32_t end : ends)
    if (std::ranges::find(use.ends, end) == use.ends.end()) use.ends.push_back(end);
  return use;
}

}  // namespace megalith
