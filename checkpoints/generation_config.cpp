#include "checkpoints/generation_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <utility>

#include "kernels/system/check.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

// Keys without an effect on our texts: those that are obeyed above, those about the inner workings or the results of
// `transformers`, and lengths, which --tokens sets.
constexpr std::array without_effect{"_from_model_config",
                                    "transformers_version",
                                    "_commit_hash",
                                    "use_cache",
                                    "cache_implementation",
                                    "cache_config",
                                    "return_dict_in_generate",
                                    "output_scores",
                                    "output_logits",
                                    "output_attentions",
                                    "output_hidden_states",
                                    "return_legacy_cache",
                                    "is_assistant",
                                    "num_assistant_tokens",
                                    "num_assistant_tokens_schedule",
                                    "assistant_confidence_threshold",
                                    "assistant_early_exit",
                                    "assistant_lookbehind",
                                    "target_lookbehind",
                                    "prompt_lookup_num_tokens",
                                    "max_matching_ngram_size",
                                    "disable_compile",
                                    "compile_config",
                                    "token_healing_model",
                                    "low_memory",
                                    "max_length",
                                    "max_new_tokens",
                                    "min_length",
                                    "max_time",
                                    "pad_token_id",
                                    "bos_token_id",
                                    "eos_token_id",
                                    "do_sample",
                                    "temperature",
                                    "top_k",
                                    "top_p",
                                    "repetition_penalty",
                                    "min_new_tokens",
                                    "num_return_sequences",
                                    "decoder_start_token_id",
                                    "early_stopping",
                                    "length_penalty",
                                    "num_beam_groups",
                                    "diversity_penalty",
                                    "encoder_no_repeat_ngram_size",
                                    "encoder_repetition_penalty",
                                    "continuous_batching_config",
                                    "prefill_chunk_size",
                                    "generation_kwargs",
                                    "chat_format",
                                    "max_window_size",
                                    "trust_remote_code"};

// Values with which these keys have no effect.
const std::vector<std::pair<const char*, Json>>& neutral() {
  static const std::vector<std::pair<const char*, Json>> all{
      {"num_beams", 1},        {"typical_p", 1.0},      {"epsilon_cutoff", 0.0},       {"eta_cutoff", 0.0},
      {"min_p", 0.0},          {"top_h", 0.0},          {"guidance_scale", 1.0},       {"no_repeat_ngram_size", 0},
      {"penalty_alpha", 0.0},  {"dola_layers", Json()}, {"renormalize_logits", false}, {"remove_invalid_values", false},
      {"token_healing", false}};
  return all;
}

bool is_obeyed(const std::string& key, const Json& value) {
  if (says_nothing(value)) return true;
  if (std::ranges::find(without_effect, key) != without_effect.end()) return true;
  return std::ranges::any_of(neutral(), [&](const auto& row) { return key == row.first && value == row.second; });
}

}  // namespace

GenerationConfig generation_config(std::string_view text, const std::string& path) {
  GenerationConfig found;
  try {
    found.keys = parse_json(text);
  } catch (const Json::exception& e) {
    FAIL("{} is not JSON: {}", path, e.what());
  }
  CHECK(found.keys.is_object(), "{} is not a JSON object", path);
  const Json& keys = found.keys;
  const auto has = [&](const char* key) { return keys.contains(key) && !keys.at(key).is_null(); };
  const auto number = [&](const char* key, double above, double most, std::optional<double>& value) {
    if (!has(key)) return;
    const Json& v = keys.at(key);
    CHECK(v.is_number() && v > above && v <= most, "{}: {} = {}; expected a number above {:g}{}", path, key,
          json_text(v), above, most < 1e300 ? fmt::format(", up to {:g}", most) : "");
    value = v.get<double>();
  };
  const auto whole = [&](const char* key, std::optional<int64_t>& value) {
    if (!has(key)) return;
    const Json& v = keys.at(key);
    CHECK(v.is_number_integer() && v >= 0 && v <= std::numeric_limits<int32_t>::max(),
          "{}: {} = {}; expected a whole number of at least 0", path, key, json_text(v));
    value = whole_number(v);
  };
  const auto token = [&](const Json& v) {
    CHECK(v.is_number_integer() && v >= 0 && v <= std::numeric_limits<int32_t>::max(),
          "{}: eos_token_id = {}; expected a token, or a list of tokens", path, json_text(keys.at("eos_token_id")));
    if (std::ranges::find(found.ends, v.get<int32_t>()) == found.ends.end()) found.ends.push_back(v.get<int32_t>());
  };
  if (has("eos_token_id")) {
    const Json& ends = keys.at("eos_token_id");
    if (ends.is_array())
      for (const Json& end : ends) token(end);
    else
      token(ends);
  }
  whole("bos_token_id", found.begin);
  whole("top_k", found.top_k);
  whole("min_new_tokens", found.min_new_tokens);
  number("temperature", -1e-300, 1e300, found.temperature);
  number("top_p", 0, 1, found.top_p);
  number("repetition_penalty", 0, 1e300, found.repetition_penalty);
  if (has("do_sample")) {
    const Json& samples = keys.at("do_sample");
    CHECK(samples.is_boolean(), "{}: do_sample = {}; expected true or false", path, json_text(samples));
    if (samples == false)
      found.temperature = 0;
    else if (!found.temperature)
      found.temperature = 1;  // the default of `transformers`
  }
  for (const auto& [key, value] : keys.items())
    if (!is_obeyed(key, value)) found.not_obeyed.push_back(fmt::format("{} = {}", key, json_text(value)));
  return found;
}

nlohmann::json ends_as_json(const std::vector<int32_t>& ends) {
  if (ends.empty()) return nullptr;
  return ends.size() == 1 ? Json(ends[0]) : Json(ends);
}

void write_generation_config(const GenerationConfig& config, const std::string& folder) {
  Json keys = config.keys;
  // Always written, since `transformers` would otherwise use its default.
  keys["bos_token_id"] = config.begin ? Json(*config.begin) : Json();
  keys["eos_token_id"] = ends_as_json(config.ends);
  // Otherwise `transformers` warns for each text.
  if (!config.ends.empty() && !keys.contains("pad_token_id")) keys["pad_token_id"] = config.ends.back();
  write_file(folder + "/" + generation_config_file, json_text(keys, 1) + "\n");
}

GenerationConfig read_generation_config(const std::string& folder) {
  const std::string path = folder + "/" + generation_config_file;
  std::error_code absent;
  if (std::filesystem::is_regular_file(path, absent)) return generation_config(read_file(path), path);
  const std::string model = folder + "/config.json";
  if (!std::filesystem::is_regular_file(model, absent)) return {};
  Json keys = Json::object();
  try {
    const Json config = parse_json(read_file(model));
    for (const char* key : {"eos_token_id", "bos_token_id"})
      if (config.is_object() && config.contains(key)) keys[key] = config.at(key);
  } catch (const Json::exception& e) {
    FAIL("{} is not JSON: {}", model, e.what());
  }
  return generation_config(json_text(keys), model);
}

}  // namespace megalith
