#include "trainer/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "kernels/system/check.h"
#include "kernels/system/counted.h"
#include "kernels/system/json.h"
#include "trainer/report/figures.h"
#include "trainer/report/sections.h"
#include "trainer/report/words.h"

namespace megalith {

namespace {

// Returns the shortest path suffixes that are distinct.
std::vector<std::string> names_of(const std::vector<History>& runs) {
  std::vector<std::filesystem::path> paths;
  for (const History& run : runs) {
    std::filesystem::path path = std::filesystem::absolute(run.folder).lexically_normal();
    paths.push_back(path.has_filename() ? path : path.parent_path());
  }
  for (int parts = 1;; parts++) {
    std::vector<std::string> names;
    bool whole = true;
    for (std::filesystem::path path : paths) {
      std::filesystem::path name;
      for (int i = 0; i < parts && path.has_filename(); i++, path = path.parent_path()) name = path.filename() / name;
      whole = whole && !path.has_filename();
      std::string text = name.string();
      if (text.ends_with('/')) text.pop_back();
      names.push_back(text);
    }
    if (whole || std::set<std::string>(names.begin(), names.end()).size() == names.size()) return names;
  }
}

std::string bar(const std::string& name, const std::vector<std::pair<std::string, double>>& parts, double of,
                int colour) {
  std::string rects;
  double sum = 0;
  for (const auto& [part, bytes] : parts) {
    rects +=
        fmt::format("<rect class=\"area-{}\" x=\"{:.5g}\" width=\"{:.5g}\" height=\"10\"><title>{}: {}</title></rect>",
                    colour++ % num_colours, 1000 * sum / of, 1000 * bytes / of, escaped(part), byte_count(bytes));
    sum += bytes;
  }
  return fmt::format(
      "<p>{}<span>{}</span></p><svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-label=\"{}\">{}</svg>",
      escaped(name), byte_count(sum), escaped(name), rects);
}

std::string memory(const std::vector<History>& runs, const std::vector<std::string>& names) {
  const auto sum = [](const auto& parts) {
    return std::accumulate(parts.begin(), parts.end(), 0.0, [](double s, const auto& p) { return s + p.second; });
  };
  double most = 0;
  for (const History& run : runs) {
    most = std::max(most, sum(run.planned_memory));
    for (const auto& [kind, bytes] : run.measured_memory) most = std::max(most, bytes);
  }
  if (most <= 0) return "";
  std::string text = "<h2>Memory of the fullest rank</h2><div class=\"card bars\">";
  std::string legend;
  for (size_t r = 0; r < runs.size(); r++) {
    const std::string of = runs.size() > 1 ? names[r] + ", " : "";
    if (!runs[r].planned_memory.empty()) text += bar(of + "planned", runs[r].planned_memory, most, 0);
    for (const auto& [kind, bytes] : runs[r].measured_memory)
      if (bytes > 0) text += bar(fmt::format("{}measured: {}", of, kind), {{kind, bytes}}, most, num_colours - 1);
    if (legend.empty()) {
      int colour = 0;
      for (const auto& [part, bytes] : runs[r].planned_memory)
        legend += fmt::format("<li><i class=\"area-{}\"></i>{}<b>{}</b></li>", colour++ % num_colours, escaped(part),
                              runs.size() > 1 ? "" : byte_count(bytes));
    }
  }
  return text + "<ul class=\"parts\">" + legend + "</ul></div>\n";
}

// Returns check boxes that hide runs.
std::string legend_of(const std::vector<std::string>& names) {
  if (names.size() == 1) return "";
  std::string text = "<ul class=\"legend\">";
  for (size_t r = 0; r < names.size(); r++)
    text +=
        fmt::format("<li><label><input type=\"checkbox\" data-run=\"{}\" checked><i class=\"{}\"></i>{}</label></li>",
                    r, line_class(r), escaped(names[r]));
  return text + "</ul>";
}

// Escapes '<', since an end tag would end the script.
std::string for_a_script(const nlohmann::ordered_json& data) {
  std::string text = json_text_of_bytes(data);
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;) text.replace(at, 1, "\\u003c");
  return text;
}

// Replaces {{name}} in the template, but not in the parts.
std::string filled(const std::string& page, const std::map<std::string, std::string>& parts) {
  std::string text;
  for (size_t at = 0;;) {
    const size_t open = page.find("{{", at);
    text += page.substr(at, open - at);
    if (open == std::string::npos) return text;
    const size_t close = page.find("}}", open);
    const auto part = parts.find(page.substr(open + 2, close - open - 2));
    CHECK(close != std::string::npos && part != parts.end(), "page.html names an unknown part: {}",
          page.substr(open, 20));
    text += part->second;
    at = close + 2;
  }
}

}  // namespace

std::string report_page(std::vector<History> runs) {
  CHECK(!runs.empty(), "no run to report");
  sort_by_held_out(runs);
  const std::vector<std::string> names = names_of(runs);
  const bool one = runs.size() == 1;
  const std::string compared = counted(runs.size(), "run") + " compared";
  std::string title = names[0];
  for (size_t r = 1; r < names.size(); r++) title += (r + 1 < names.size() ? ", " : " and ") + names[r];
  if (runs.size() > 4) title = compared;
  nlohmann::ordered_json data = plots(runs, names);
  data["time"] = where_time_went(runs);
  return filled(page_html, {{"title", escaped(title)},
                            {"css", page_css},
                            {"about", one || runs.size() > 4 ? "" : compared},
                            {"overview", one ? tiles(runs[0]) : table(runs, names)},
                            {"legend", legend_of(names)},
                            {"data", for_a_script(data)},
                            {"curves", curves_js},
                            {"stacked", stacked_js},
                            {"js", page_js},
                            {"memory", memory(runs, names)},
                            {"facts", one ? facts(runs, names) : ""},
                            {"runs", one ? "" : facts(runs, names)}});
}

}  // namespace megalith
