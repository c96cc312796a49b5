// generation_config.json, in which a Hugging Face checkpoint specifies how to generate text: the tokens that end it,
// and the rules by which a token is drawn. Source of names and defaults: GenerationConfig of `transformers` 4.46 and 5.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace megalith {

constexpr const char* generation_config_file = "generation_config.json";

struct GenerationConfig {
  std::vector<int32_t> ends{};     // eos_token_id, a number or a list
  std::optional<int64_t> begin{};  // bos_token_id
  // temperature is 0 if do_sample is false, since `transformers` then takes the likeliest token.
  std::optional<double> temperature{}, top_p{}, repetition_penalty{};
  std::optional<int64_t> top_k{}, min_new_tokens{};
  std::vector<std::string> not_obeyed{};           // other settings that would change a text, as "num_beams = 4"
  nlohmann::json keys = nlohmann::json::object();  // all keys of the file
};

// Reads the file of a folder. If it is absent, the tokens that begin and end texts come from config.json. Error: the
// file is not a JSON object, or an obeyed key has a value of another kind.
GenerationConfig read_generation_config(const std::string& folder);
// Writes the file: config.keys, with the tokens of `ends` and `begin`. Error: the file exists.
void write_generation_config(const GenerationConfig& config, const std::string& folder);
// Returns the value of eos_token_id: null, a token, or a list.
nlohmann::json ends_as_json(const std::vector<int32_t>& ends);

GenerationConfig generation_config(std::string_view text, const std::string& path);

}  // namespace megalith
