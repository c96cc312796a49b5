// The tokens that a tokenizer.json's post_processor adds before and after every text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace megalith {

struct TextFrame {
  std::vector<int32_t> beginning, ending;
};

// Reads a post_processor; null means none. Error, by key and value: a kind other than TemplateProcessing,
// BertProcessing, RobertaProcessing, ByteLevel and sequences of them; `path` begins the message. The caller checks the
// ids.
TextFrame read_text_frame(const nlohmann::json& processor, const std::string& path);

}  // namespace megalith
