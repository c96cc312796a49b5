#include "trainer/report/page.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/system/check.h"
#include "kernels/system/json.h"
#include "trainer/report/sections.h"
#include "trainer/report/summary.h"

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
  sort_by_validation(runs);
  const std::vector<std::string> names = names_of(runs);
  nlohmann::ordered_json data = plots(runs, names);
  for (size_t r = 0; r < runs.size(); r++) data["runs"][r].update(said_of_run(runs[r]));
  const std::vector<std::vector<size_t>> groups = by_tokenizer(runs);
  for (size_t g = 0; g < groups.size(); g++)
    for (const size_t r : groups[g]) data["runs"][r].update({{"group", g}, {"tokenizer", tokenizer_in_words(runs[r])}});
  data["time"] = where_time_went(runs);
  return filled(page_html, {{"css", page_css}, {"data", for_a_script(data)}, {"js", page_js}});
}

}  // namespace megalith
