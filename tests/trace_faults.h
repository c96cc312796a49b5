// Says what is wrong with a trace for ui.perfetto.dev, by Chrome's document "Trace Event Format" and by what Perfetto's
// importer drops or warns of: the form of every event, names of every process and thread that has events, and that the
// complete events of a thread are nested or disjoint. Perfetto's own trace processor, which is not on every machine, is
// asked as well by tests/end_to_end/perfetto_test.cpp.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace megalith::test {

inline std::vector<std::string> trace_faults(const nlohmann::json& trace) {
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array())
    return {"no object with an array traceEvents"};
  std::vector<std::string> faults;
  const auto fault = [&](const nlohmann::json& event, const char* what) {
    if (faults.size() < 20) faults.push_back(fmt::format("{}: {}", what, event.dump()));
  };
  using Track = std::pair<int64_t, int64_t>;
  std::map<int64_t, int> processes;                               // how often named
  std::map<Track, int> threads;                                   // the same
  std::map<Track, std::vector<std::pair<int64_t, int64_t>>> all;  // begin and end in nanoseconds
  for (const nlohmann::json& e : trace["traceEvents"]) {
    const auto is = [&](const char* key, auto check) { return e.contains(key) && check(e[key]); };
    const auto text = [](const nlohmann::json& v) { return v.is_string() && !v.get<std::string>().empty(); };
    const auto whole = [](const nlohmann::json& v) { return v.is_number_integer() && v.get<int64_t>() >= 0; };
    const auto time = [](const nlohmann::json& v) { return v.is_number() && v.get<double>() >= 0; };
    if (!e.is_object() || !is("ph", text) || !is("name", text) || !is("pid", whole) || !is("tid", whole)) {
      fault(e, "ph, name, pid or tid");
      continue;
    }
    const Track track{e["pid"], e["tid"]};
    if (e["ph"] == "X") {
      if (!is("ts", time) || !is("dur", time)) {
        fault(e, "ts or dur");
        continue;
      }
      const int64_t begin = std::llround(e["ts"].get<double>() * 1e3);
      all[track].emplace_back(begin, begin + std::llround(e["dur"].get<double>() * 1e3));
    } else if (e["ph"] == "M") {
      const bool names = e["name"] == "process_name" || e["name"] == "thread_name";
      const bool sorts = e["name"] == "process_sort_index" || e["name"] == "thread_sort_index";
      const nlohmann::json args = e.value("args", nlohmann::json::object());
      if (names ? !args.contains("name") || !text(args["name"])
                : !sorts || !args.contains("sort_index") || !args["sort_index"].is_number_integer())
        fault(e, "metadata");
      if (e["name"] == "process_name") processes[track.first]++;
      if (e["name"] == "thread_name") threads[track]++;
    } else {
      fault(e, "ph is neither X nor M");
    }
  }
  for (auto& [track, spans] : all) {
    const nlohmann::json where{{"pid", track.first}, {"tid", track.second}};
    if (processes[track.first] != 1) fault(where, "process_name is not there once");
    if (threads[track] != 1) fault(where, "thread_name is not there once");
    // Where several begin at once, the outermost has to come first.
    std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<int64_t> open;  // ends
    for (const auto& [begin, end] : spans) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      if (!open.empty() && end > open.back())
        fault(where, fmt::format("[{}, {}] ns overlaps the end {}", begin, end, open.back()).c_str());
      open.push_back(end);
    }
  }
  return faults;
}

}  // namespace megalith::test
