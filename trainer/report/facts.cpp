#include "trainer/report/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "configs/config.h"
#include "kernels/system/counted.h"
#include "trainer/report/figures.h"
#include "trainer/report/words.h"

namespace megalith {

namespace {

constexpr size_t most_warnings = 200;  // a run
constexpr size_t most_texts = 50;      // a prompt

std::string fact(const char* name, const std::string& html) {
  return html.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>", name, html);
}

std::string code(const std::string& text) { return text.empty() ? "" : fmt::format("<code>{}</code>", escaped(text)); }

std::string how_it_ended(const RunLog& log) {
  switch (log.end) {
    case RunLog::End::unknown: return "There is no log.txt.";
    case RunLog::End::open: return "It is running or was killed: log.txt has no line about its end.";
    case RunLog::End::ended: return "<b class=\"bad\">" + escaped(log.words) + "</b>";
    case RunLog::End::done: break;
  }
  return escaped(log.words);
}

std::string folded(const std::string& summary, const std::string& text) {
  return fmt::format("<details><summary>{}</summary><pre>{}</pre></details>", summary, text);
}

std::string warnings(const RunLog& log) {
  const size_t all = log.warnings.size(), shown = std::min(all, most_warnings);
  if (all == 0) return log.end == RunLog::End::unknown ? "" : "none";
  std::string lines;
  for (size_t i = all - shown; i < all; i++) lines += escaped(log.warnings[i]) + "\n";
  return folded(counted(all, "warning") + (shown < all ? fmt::format(", of which these are the last {}", shown) : ""),
                lines);
}

std::string configuration(const History& run) {
  if (!run.settings_unknown.empty()) return "Unknown: " + escaped(run.settings_unknown);
  std::map<std::string, std::string> defaults;
  for (const auto& [key, value] : key_values(Config{})) defaults[key] = value;
  std::string lines;
  int64_t set = 0;
  for (const auto& [key, value] : run.settings) {
    const bool other = defaults[key] != value;
    set += other ? 1 : 0;
    const std::string line = escaped(key) + " = " + escaped(value);
    lines += (other ? "<b>" + line + "</b>" : line) + "\n";
  }
  return folded(fmt::format("{}, {} not at the default, in bold", counted(run.settings.size(), "key"), set), lines);
}

std::string data(const History& run) {
  std::string text;
  for (const Source& source : run.data)
    text += fmt::format("{}<code>{}</code>: {}, {} samples an epoch", text.empty() ? "" : "<br>", escaped(source.name),
                        escaped(source.content), grouped(source.samples));
  return text;
}

std::string held_out(const History& run) {
  const auto name = run.settings.find("data.validation");
  if (run.held_out.empty()) return "";
  return name == run.settings.end() ? escaped(run.held_out) : code(name->second) + ": " + escaped(run.held_out);
}

std::string when(const History& run) {
  if (!std::isfinite(run.began)) return "";
  return fmt::format("{} to {}{}", day_and_time(run.began), day_and_time(run.last),
                     run.resumed.empty() ? "" : fmt::format(", resumed {}", counted(run.resumed.size(), "time")));
}

std::string origins(const History& run) {
  std::string text;
  for (const History::Origin& o : run.origins)
    text += fmt::format("{}{}, step {}{}", text.empty() ? "" : "<br>", code(o.checkpoint), grouped(o.step),
                        o.decay.empty() ? "" : ", with another decay: " + escaped(o.decay));
  return text;
}

std::string machine(const History& run) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() || part.empty() ? "" : " · ") + part; };
  if (run.parameters > 0) add(short_number(static_cast<double>(run.parameters)) + " parameters");
  add(!run.layout.empty() ? run.layout : run.ranks > 0 ? counted(run.ranks, "rank") : "");
  for (const std::string& part : {run.device, run.compute, run.host.empty() ? "" : "on " + run.host}) add(part);
  return escaped(text);
}

std::string text_of(const History& run) {
  if (run.continuation.empty()) return "";
  return fmt::format("<p class=\"sample\"><b>{}</b>{}</p>", escaped(run.prompt), escaped(run.continuation));
}

// Returns what the run wrote while it trained: by prompt, the newest text, and the others in a list that opens. Of many
// texts some are left out, evenly, and never the first or the last.
std::string texts_of(const History& run) {
  std::vector<std::string> prompts;
  std::map<std::string, std::vector<const WrittenText*>> by_prompt;
  for (const WrittenText& text : run.texts) {
    if (!by_prompt.contains(text.prompt)) prompts.push_back(text.prompt);
    by_prompt[text.prompt].push_back(&text);
  }
  const auto line = [](const WrittenText& text) {
    return fmt::format("<p class=\"sample\"><small>step {}</small> <b>{}</b>{}</p>", grouped(text.step),
                       escaped(text.prompt), escaped(text.text));
  };
  std::string html;
  for (const std::string& prompt : prompts) {
    const std::vector<const WrittenText*>& all = by_prompt[prompt];
    const size_t shown = std::min(all.size(), most_texts);
    std::string older;
    for (size_t i = 0; i + 1 < shown; i++) older += line(*all[i * (all.size() - 1) / (shown - 1)]);
    html += line(*all.back());
    if (!older.empty())
      html += fmt::format("<details><summary>{} before{}</summary>{}</details>", counted(all.size() - 1, "text"),
                          shown < all.size() ? fmt::format(", {} shown", shown - 1) : "", older);
  }
  return html;
}

std::string facts_of(const History& run) {
  return "<dl class=\"facts\">" + fact("How it ended", how_it_ended(run.log)) + fact("Warnings", warnings(run.log)) +
         fact("From, to", when(run)) + fact("Goes on from", origins(run)) + fact("Model", machine(run)) +
         fact("Command", code(run.command)) + fact("Program", escaped(run.version)) +
         fact("Tokenizer", escaped(run.tokenizer_name)) + fact("Training data", data(run)) +
         fact("Held-out data", held_out(run)) + fact("Sample text", text_of(run)) +
         fact("Written in training", texts_of(run)) + fact("Folder", code(run.folder)) +
         fact("Configuration", configuration(run)) + "</dl>";
}

}  // namespace

std::string facts(const std::vector<History>& runs, const std::vector<std::string>& names) {
  if (runs.size() == 1) return "<div class=\"card\">" + facts_of(runs[0]) + "</div>\n";
  std::string text = "<h2>The runs</h2>";
  for (size_t r = 0; r < runs.size(); r++)
    text +=
        fmt::format("<details class=\"card\"><summary><i class=\"{}\"></i>{} <small>{}</small></summary>{}</details>\n",
                    line_class(r), escaped(names[r]), end_in_a_word(runs[r].log), facts_of(runs[r]));
  return text;
}

}  // namespace megalith
