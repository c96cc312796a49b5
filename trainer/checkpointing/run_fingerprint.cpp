#include "trainer/checkpointing/run_fingerprint.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>
#include <utility>

#include "checkpoints/checksum.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"
#include "trainer/job/content.h"

namespace megalith {

namespace {

// Returns whether a key has an effect on results beyond the order of sums.
bool matters(const std::string& key, const Config& config) {
  const bool constant = config.optimizer.decay == Decay::constant;
  if (constant && (key == "optimizer.decay_steps" || key == "optimizer.min_learning_rate")) return false;
  // Keys that older checkpoints lack are compared as if they had the default.
  const bool muon = config.optimizer.algorithm == Algorithm::muon;
  if (key == "optimizer.algorithm") return config.optimizer.algorithm != Algorithm::adamw;
  if (key == "optimizer.muon_learning_rate") return muon;
  if (key == "optimizer.muon_min_learning_rate") return muon && !constant;
  if (key == "optimizer.decay_begin") return !constant && config.optimizer.decay_begin > 0;
  if (key == "data.isolate_documents" || key == "data.end_of_text") return config.data.isolate_documents;
  if (key == "data.pack") return config.data.masked;
  if (key.starts_with("adapter.")) return config.adapter.in_use() && key != "adapter.init_from";
  if (key == "train.freeze") return !config.train.freeze.empty();
  static const std::set<std::string> keys{
      "model.dropout", "data.shuffle", "data.seed", "batch.sequence_length", "batch.global_batch_size", "train.seed"};
  return key.starts_with("optimizer.") || keys.contains(key);
}

using Settings = std::map<std::string, std::string>;
constexpr const char* validation_key = "data.validation";

// Returns whether the key decides how a rate decays once it does.
bool is_of_decay(const std::string& key) {
  static const std::set<std::string> keys{"optimizer.decay", "optimizer.decay_begin", "optimizer.decay_steps",
                                          "optimizer.min_learning_rate", "optimizer.muon_min_learning_rate"};
  return keys.contains(key);
}

// Returns the number of updates whose rates depend only on the warm-up and the highest rate.
double updates_before_decay(const Settings& settings) {
  const auto number = [&](const char* key) {
    const auto found = settings.find(key);
    return found == settings.end() ? 0.0 : std::strtod(found->second.c_str(), nullptr);
  };
  const auto decay = settings.find("optimizer.decay");
  if (decay == settings.end()) return 0;
  if (decay->second == "\"constant\"") return std::numeric_limits<double>::infinity();
  const double begin = number("optimizer.decay_begin");
  return (begin > 0 ? begin : number("optimizer.warmup_steps")) + 1;  // the first update of a decay has the whole rate
}

// Returns the settings that could affect the updates so far: without the keys of a decay that none of these updates has
// reached.
std::pair<Settings, Settings> felt(Settings there, Settings here, int64_t step) {
  if (static_cast<double>(step) <= std::min(updates_before_decay(there), updates_before_decay(here)))
    for (Settings* settings : {&there, &here})
      std::erase_if(*settings, [](const auto& s) { return is_of_decay(s.first); });
  return {std::move(there), std::move(here)};
}

std::string describe(const std::vector<RunFingerprint::Source>& sources) {
  std::string text;
  for (const RunFingerprint::Source& s : sources)
    text += fmt::format("{}{}{} ({})", text.empty() ? "" : " and ", s.name,
                        sources.size() == 1 ? "" : fmt::format(" with weight {}", s.share), s.content);
  return text;
}

bool same_data(const std::vector<RunFingerprint::Source>& a, const std::vector<RunFingerprint::Source>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const RunFingerprint::Source& x, const RunFingerprint::Source& y) {
                      return x.content == y.content && x.share == y.share;
                    });
}

}  // namespace

std::string hash_of(const Tokenizer& tokenizer) {
  const std::string content = tokenizer.content();
  return hex(checksum_of(content.data(), static_cast<int64_t>(content.size())));
}

// Older checkpoints lack some of it.
RunFingerprint::Source source_from(const nlohmann::json& json) {
  const auto count = [&](const char* key) { return json.contains(key) ? whole_number(json.at(key)) : 0; };
  return {.name = json.at("name").get<std::string>(),
          .content = json.value("content", ""),
          .share = whole_number(json.at("share")),
          .samples = whole_number(json.at("samples")),
          .left_out = count("left_out"),
          .tokens = count("tokens"),
          .masked = json.value("masked", false),
          .tokens_hash = json.value("tokens_hash", "")};
}

nlohmann::json to_json(const std::vector<RunFingerprint::Source>& sources) {
  nlohmann::json all = nlohmann::json::array();
  for (const RunFingerprint::Source& s : sources)
    all.push_back({{"name", s.name},
                   {"content", s.content},
                   {"share", s.share},
                   {"samples", s.samples},
                   {"left_out", s.left_out},
                   {"tokens", s.tokens},
                   {"masked", s.masked},
                   {"tokens_hash", s.tokens_hash}});
  return all;
}

std::string hash_of_tokens(const TokenStream& stream, int64_t tokens) {
  constexpr int64_t block = 64 << 10, gaps = 255;
  const int64_t stride = std::max(block, (tokens - block + gaps - 1) / gaps);
  std::vector<int32_t> buffer;
  Checksum sum;
  for (int64_t begin = 0; begin < tokens; begin += stride) {
    buffer.resize(static_cast<size_t>(std::min(block, tokens - begin)));
    stream.read(begin, buffer);
    sum.add(buffer.data(), std::ssize(buffer) * static_cast<int64_t>(sizeof(int32_t)));
  }
  return hex(sum.value());
}

RunFingerprint run_fingerprint(const Config& config, const Tokenizer* tokenizer, const Loader& data,
                               const std::string& validation) {
  RunFingerprint fingerprint;
  if (tokenizer) {
    fingerprint.tokenizer = hash_of(*tokenizer);
    fingerprint.tokenizer_name =
        fmt::format("{} ({} ids, hash {})", config.data.tokenizer, tokenizer->vocab_size(), fingerprint.tokenizer);
  }
  const SampleOrder& order = data.order();
  for (size_t i = 0; i < data.streams().size(); i++) {
    const TokenStream& stream = data.streams()[i];
    fingerprint.sources.push_back({.name = stream.path(),
                                   .content = content_of_source(stream.path()),
                                   .share = order.blend().shares()[i],
                                   .samples = order.sizes()[i],
                                   .left_out = data.left_out(i),
                                   .tokens = stream.size(),
                                   .masked = stream.is_masked(),
                                   .tokens_hash = hash_of_tokens(stream, stream.size())});
  }
  for (const auto& [key, value] : key_values(config))
    if (matters(key, config))
      fingerprint.settings[key] = value;
    else if (key.starts_with("precision."))
      fingerprint.told[key] = value;
  if (!validation.empty()) fingerprint.told[validation_key] = validation;
  return fingerprint;
}

nlohmann::json to_json(const RunFingerprint& fingerprint) {
  return {{"tokenizer", fingerprint.tokenizer},
          {"tokenizer_name", fingerprint.tokenizer_name},
          {"sources", to_json(fingerprint.sources)},
          {"settings", fingerprint.settings},
          {"told", fingerprint.told}};
}

RunFingerprint run_fingerprint_from(const nlohmann::json& json) {
  RunFingerprint fingerprint;
  fingerprint.tokenizer = json.at("tokenizer").get<std::string>();
  fingerprint.tokenizer_name = json.at("tokenizer_name").get<std::string>();
  for (const nlohmann::json& source : json.at("sources")) fingerprint.sources.push_back(source_from(source));
  fingerprint.settings = json.at("settings").get<std::map<std::string, std::string>>();
  fingerprint.told = json.value("told", std::map<std::string, std::string>());
  return fingerprint;
}

namespace {

std::vector<std::string> differences(const Settings& there, const Settings& here) {
  std::vector<std::string> lines;
  Settings keys = there;
  keys.insert(here.begin(), here.end());
  for (const auto& [key, ignored] : keys) {
    const auto of = [&key = key](const Settings& settings) {
      const auto found = settings.find(key);
      return found == settings.end() ? std::string("no effect") : found->second;
    };
    if (of(there) != of(here)) lines.push_back(fmt::format("{}: {} there, {} here", key, of(there), of(here)));
  }
  return lines;
}

}  // namespace

std::vector<std::string> differences(const RunFingerprint& there, const RunFingerprint& here, int64_t step) {
  std::vector<std::string> lines;
  if (!same_data(there.sources, here.sources))
    lines.push_back(fmt::format("data.train: {} there, {} here", describe(there.sources), describe(here.sources)));
  const auto [felt_there, felt_here] = felt(there.settings, here.settings, step);
  for (std::string& line : differences(felt_there, felt_here)) lines.push_back(std::move(line));
  return lines;
}

std::string other_decay(const nlohmann::json& state, const RunFingerprint& here, int64_t step) {
  if (!state.contains("course")) return "";
  const Settings there = run_fingerprint_from(state.at("course")).settings;
  std::string text;
  if (const auto [a, b] = felt(there, here.settings, step); a.size() < there.size())
    for (const std::string& line : differences(there, here.settings))
      if (is_of_decay(line.substr(0, line.find(':')))) text += (text.empty() ? "" : "; ") + line;
  return text;
}

namespace {
const char* consequence_of(const std::string& key) {
  if (key == validation_key) return "losses on it cannot be compared with earlier ones";
  if (key == "precision.master" || key == "precision.moments" || key == "precision.stochastic_rounding")
    return "the state is converted to its new type, and values that were rounded before stay rounded";
  return "the state stays as it is";
}
}  // namespace

std::vector<std::string> told_changes(const nlohmann::json& state, const RunFingerprint& here) {
  std::vector<std::string> lines;
  if (!state.contains("course")) return lines;
  const std::map<std::string, std::string> there = run_fingerprint_from(state.at("course")).told;
  for (const auto& [key, value] : here.told) {
    const auto then = there.find(key);
    if (then == there.end() || then->second == value) continue;
    lines.push_back(fmt::format("{}: {} so far, {} from now on; {}", key, then->second, value, consequence_of(key)));
  }
  return lines;
}

std::string validation_data_of(const nlohmann::json& state) {
  return state.value(nlohmann::json::json_pointer("/course/told") / validation_key, std::string());
}

std::vector<std::string> check_fingerprint(const std::string& what, const nlohmann::json& state, int64_t step,
                                           const RunFingerprint& here, const Config& config) {
  if (!state.contains("course"))
    return {what +
            " was written before checkpoints kept a fingerprint: data, tokenizer and schedule could not be compared"};
  RunFingerprint there;
  try {
    there = run_fingerprint_from(state.at("course"));
  } catch (const nlohmann::json::exception& e) {
    FAIL("{}: cannot read the run's fingerprint, \"course\", in its manifest ({}); was it written by another program?",
         what, e.what());
  }
  CHECK(there.tokenizer.empty() || here.tokenizer.empty() || there.tokenizer == here.tokenizer,
        "{} was trained with another tokenizer, {}, than that of this run, {}: its model would misread the text. For "
        "text of another tokenizer use another run.output; to continue, prepare the text with the tokenizer of the "
        "run, {}/tokenizer in its folder",
        what, there.tokenizer_name, here.tokenizer_name, config.run.output);
  std::vector<std::string> changed = differences(there, here, step);
  if (changed.empty()) return {};
  std::string list;
  for (const std::string& line : changed) list += "\n  " + line;
  const bool schedule = list.find("\n  optimizer.decay_steps: ") != std::string::npos;
  CHECK(config.checkpoint.allow_changes,
        "{} is from a run with other data or settings:{}\nRestore them, or set checkpoint.allow_changes = true to "
        "continue with the new ones; for a separate run use another run.output{}",
        what, list,
        schedule ? ". (optimizer.decay_steps = 0 means train.steps: a longer run has another schedule. A checkpoint "
                   "from before the decay, such as any with optimizer.decay = \"constant\", continues with any decay)"
                 : "");
  for (std::string& line : changed) line = "changed, as checkpoint.allow_changes permits: " + line;
  return changed;
}

}  // namespace megalith
