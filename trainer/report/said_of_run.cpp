#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "configs/config.h"
#include "trainer/report/sections.h"
#include "trainer/report/summary.h"

namespace megalith {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t most_warnings = 200;  // maximum for a run
constexpr size_t most_texts = 50;      // maximum for a prompt

Json end_of(const RunLog& log) {
  const size_t all = log.warnings.size(), shown = std::min(all, most_warnings);
  const char* kinds[] = {"unknown", "open", "ended", "done"};
  return {{"kind", kinds[static_cast<int>(log.end)]},
          {"words", log.words},
          {"warnings", all},
          {"shown", std::vector(log.warnings.end() - static_cast<ptrdiff_t>(shown), log.warnings.end())}};
}

// Returns the settings as [key, value, whether it is the default].
Json settings_of(const History& run) {
  std::map<std::string, std::string> defaults;
  for (const auto& [key, value] : key_values(Config{})) defaults[key] = value;
  Json all = Json::array();
  for (const auto& [key, value] : run.settings) all.push_back({key, value, defaults[key] == value});
  return all;
}

// Returns the texts that the run wrote during training, by prompt. Of many texts some are left out, evenly, but never
// the first or the last.
Json texts_of(const History& run) {
  Json prompts = Json::array();
  std::map<std::string, std::vector<const WrittenText*>> by_prompt;
  std::vector<std::string> order;
  for (const WrittenText& text : run.texts) {
    if (!by_prompt.contains(text.prompt)) order.push_back(text.prompt);
    by_prompt[text.prompt].push_back(&text);
  }
  for (const std::string& prompt : order) {
    const std::vector<const WrittenText*>& all = by_prompt[prompt];
    const size_t shown = std::min(all.size(), most_texts);
    Json texts = Json::array();
    for (size_t i = 0; i < shown; i++) {
      const WrittenText& text = *all[shown == 1 ? 0 : i * (all.size() - 1) / (shown - 1)];
      texts.push_back({{"step", text.step}, {"text", text.text}});
    }
    prompts.push_back({{"prompt", prompt}, {"all", all.size()}, {"texts", std::move(texts)}});
  }
  return prompts;
}

}  // namespace

Json said_of_run(const History& run) {
  const auto moment = [](double seconds) { return std::isfinite(seconds) ? Json(seconds) : nullptr; };
  Json origins = Json::array(), sources = Json::array();
  for (const History::Origin& o : run.origins)
    origins.push_back({{"checkpoint", o.checkpoint}, {"step", o.step}, {"decay", o.decay}});
  for (const DataSource& s : run.data)
    sources.push_back({{"name", s.name}, {"content", s.content}, {"samples", s.samples}});
  const auto validation = run.settings.find("data.validation");
  return {{"summary", summary_of(run)},
          {"end", end_of(run.log)},
          {"began", moment(run.began)},
          {"last", moment(run.last)},
          {"origins", std::move(origins)},
          {"layout", run.layout},
          {"ranks", run.ranks},
          {"machine", {run.device, run.compute, run.host.empty() ? "" : "on " + run.host}},
          {"command", run.command},
          {"version", run.version},
          {"tokenizerName", run.tokenizer_name},
          {"data", std::move(sources)},
          {"validationName", validation == run.settings.end() ? "" : validation->second},
          {"validation", run.validation},
          {"prompt", run.prompt},
          {"continuation", run.continuation},
          {"texts", texts_of(run)},
          {"folder", run.folder},
          {"settings", settings_of(run)},
          {"settingsUnknown", run.settings_unknown},
          {"planned", run.planned_memory},
          {"measured", run.measured_memory}};
}

}  // namespace megalith
