#include "trainer/report/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "trainer/report/figures.h"
#include "trainer/report/words.h"

namespace megalith {

namespace {

struct Column {
  std::string name;                // HTML
  std::vector<std::string> cells;  // HTML, by run
  std::set<size_t> best = {};      // runs
};

// Returns an empty column if no run has the figure.
Column column_of(const std::vector<std::vector<Figure>>& figures, size_t f, bool one_tokenizer) {
  Column column{figures[0][f].name, {}};
  double best = no_number;
  bool any = false;
  for (const auto& of_run : figures) {
    const Figure& figure = of_run[f];
    column.cells.push_back(figure.text);
    any = any || figure.text != "–";
    if (const double v = figure.better * figure.value; figure.better != 0 && std::isfinite(v) && !(v <= best)) best = v;
  }
  if (!any) return {};
  if (one_tokenizer || !figures[0][f].of_tokens)
    for (size_t r = 0; r < figures.size(); r++)
      if (figures[r][f].better * figures[r][f].value == best) column.best.insert(r);
  return column;
}

std::vector<Column> differing_settings(const std::vector<History>& runs) {
  std::set<std::string> keys;
  for (const History& run : runs)
    for (const auto& [key, value] : run.settings) keys.insert(key);
  std::vector<Column> columns;
  for (const std::string& key : keys) {
    if (key == "run.output" || key == "checkpoint.directory") continue;
    Column column{with_breaks(key), {}};
    for (const History& run : runs) {
      const auto found = run.settings.find(key);
      column.cells.push_back(found == run.settings.end() ? "–" : escaped(found->second));
    }
    if (std::set<std::string>(column.cells.begin(), column.cells.end()).size() > 1)
      columns.push_back(std::move(column));
  }
  return columns;
}

std::string notes(const std::vector<History>& runs, const std::vector<std::vector<size_t>>& groups) {
  std::string text;
  if (groups.size() > 1) {
    text = fmt::format(
        "<p class=\"note\">These runs have {} tokenizers. Loss and perplexity count tokens, so they are compared only "
        "within a tokenizer; bits per byte are compared among all.</p>",
        groups.size());
  }
  for (const std::vector<size_t>& group : groups) {
    std::set<std::string> texts;
    for (const size_t r : group)
      if (!runs[r].held_out.empty()) texts.insert(runs[r].held_out);
    if (texts.size() < 2) continue;
    return text +
           "<p class=\"note\">Runs of one tokenizer have different tokens in data.validation: their held-out figures "
           "are of different texts.</p>";
  }
  return text;
}

}  // namespace

std::string tiles(const History& run) {
  std::string text = "<dl class=\"tiles\">";
  for (const Figure& f : figures_of(run))
    if (f.text != "–")
      text += fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>", f.name, f.text, f.more);
  return text + "</dl>\n";
}

std::string table(const std::vector<History>& runs, const std::vector<std::string>& names) {
  const std::vector<std::vector<size_t>> groups = by_tokenizer(runs);
  std::vector<std::vector<Figure>> figures;
  for (const History& run : runs) figures.push_back(figures_of(run));
  std::vector<Column> columns;
  for (size_t f = 0; f < figures[0].size(); f++)
    if (Column column = column_of(figures, f, groups.size() == 1); !column.cells.empty())
      columns.push_back(std::move(column));
  Column end{"End", {}}, warnings{"Warnings", {}}, tokenizer{"Tokenizer", {}};
  for (const History& run : runs) {
    end.cells.push_back(end_in_a_word(run.log));
    warnings.cells.push_back(run.log.end == RunLog::End::unknown ? "–" : std::to_string(run.log.warnings.size()));
    tokenizer.cells.push_back(with_breaks(tokenizer_in_words(run)));
  }
  columns.push_back(std::move(end));
  columns.push_back(std::move(warnings));
  if (groups.size() > 1) columns.push_back(std::move(tokenizer));
  for (Column& setting : differing_settings(runs)) columns.push_back(std::move(setting));

  constexpr size_t longest = 30;  // letters that fit a line
  std::string text = "<div class=\"scroll\"><table><thead><tr><th>Run</th>";
  for (const Column& column : columns) text += fmt::format("<th>{}</th>", column.name);
  text += "</tr></thead><tbody>";
  for (size_t r = 0; r < runs.size(); r++) {
    text += fmt::format("<tr data-run=\"{}\"><th{}><i class=\"{}\"></i>{}</th>", r,
                        names[r].size() > longest ? " class=\"long\"" : "", line_class(r), with_breaks(names[r]));
    // On a narrow page a row becomes a card, so each cell names its column.
    for (const Column& column : columns) {
      const std::string& cell = column.cells[r];
      const char* kind = column.best.contains(r) ? " class=\"best\"" : cell.size() > longest ? " class=\"long\"" : "";
      text += fmt::format("<td{}><span>{}</span>{}</td>", kind, column.name, cell);
    }
    text += "</tr>";
  }
  return text + "</tbody></table></div>\n" + notes(runs, groups);
}

}  // namespace megalith
