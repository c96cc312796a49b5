// The byte tokenizer in Hugging Face's format, with a post-processor that begins every text with <|endoftext|>.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "data/tokenizers/tokenizer.h"
#include "kernels/system/files.h"

namespace megalith {

// Writes it into an existing folder.
inline std::unique_ptr<Tokenizer> write_framed_bytes(const std::string& folder) {
  make_byte_tokenizer()->save_for_transformers(folder, 8, "");
  const std::string path = folder + "/tokenizer.json";
  nlohmann::json file = nlohmann::json::parse(read_file(path));
  file["post_processor"] = nlohmann::json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [256], "tokens": ["<|endoftext|>"]}}})");
  remove_all(path);
  write_file(path, file.dump());
  return load_tokenizer(folder);
}

}  // namespace megalith
