#include "trainer/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "kernels/base/check.h"
#include "kernels/base/counted.h"
#include "trainer/report/plot.h"
#include "trainer/report/time_went.h"

namespace megalith {

namespace {

using Values = std::vector<double>;

Values finite(const Values& all) {
  Values found;
  std::ranges::copy_if(all, std::back_inserter(found), [](double v) { return std::isfinite(v); });
  return found;
}

double median_of(const Values& all) {
  Values values = finite(all);
  if (values.empty()) return no_number;
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

double lowest(const Values& all) {
  const Values values = finite(all);
  return values.empty() ? no_number : *std::ranges::min_element(values);
}

// Of the last thirtieth.
double last_mean(const Values& all) {
  const Values last = finite({all.end() - static_cast<ptrdiff_t>((all.size() + 29) / 30), all.end()});
  return std::accumulate(last.begin(), last.end(), 0.0) / static_cast<double>(last.size());
}

std::string number_or_dash(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "–";
}

// 12,345
std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

std::string duration(double hours) {
  if (hours >= 48) return fmt::format("{:.1f}\u00a0days", hours / 24);
  if (hours >= 1) return fmt::format("{:.2g}\u00a0h", hours);
  return hours * 60 >= 1 ? fmt::format("{:.3g}\u00a0min", hours * 60) : fmt::format("{:.3g}\u00a0s", hours * 3600);
}

std::string gib(double bytes) {
  return bytes >= 1 << 30 ? fmt::format("{:.2f} GiB", bytes / (1 << 30)) : fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

// The shortest ends of the folders' names that tell them apart.
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

// A figure of merit of a run.
struct Figure {
  std::string name, text, more = {};
  double value = no_number;
  int better = 0;  // 1: more, -1: less
};

std::vector<Figure> figures_of(const History& run) {
  std::vector<Figure> all;
  const double loss = last_mean(run.loss), held_out = lowest(run.held_out_loss), bits = lowest(run.bits_per_byte);
  all.push_back({"Loss", number_or_dash(loss, 4), "mean at the end", loss, -1});
  all.push_back({"Held-out loss", number_or_dash(held_out, 4), "lowest", held_out, -1});
  all.push_back({"Bits per byte", number_or_dash(bits, 4), "lowest, held-out", bits, -1});
  all.push_back({"Steps", grouped(static_cast<int64_t>(run.steps.step.back())),
                 run.skipped.empty() ? "" : counted(static_cast<int64_t>(run.skipped.size()), "step") + " skipped"});
  all.push_back({"Tokens", short_number(run.steps.tokens.back()),
                 run.parameters > 0
                     ? fmt::format("{:.3g} a parameter", run.steps.tokens.back() / static_cast<double>(run.parameters))
                     : ""});
  all.push_back({"Training", duration(run.steps.hours.back()),
                 run.resumed.empty() ? "" : "resumed " + counted(static_cast<int64_t>(run.resumed.size()), "time")});
  const double speed = median_of(run.tokens_per_second), mfu = median_of(run.mfu);
  all.push_back({"Tokens a second", short_number(speed),
                 std::isfinite(mfu) ? fmt::format("MFU {:.1f}\u00a0%", 100 * mfu) : "median", speed, 1});
  return all;
}

std::string about(const History& run) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() || part.empty() ? "" : " · ") + part; };
  if (run.parameters > 0) add(short_number(static_cast<double>(run.parameters)) + " parameters");
  add(!run.layout.empty() ? run.layout : run.ranks > 0 ? counted(run.ranks, "rank") : "");
  for (const std::string& part : {run.device, run.compute, run.host.empty() ? "" : "on " + run.host}) add(part);
  return escaped(text);
}

std::string tiles(const History& run) {
  std::string text = "<dl class=\"tiles\">";
  for (const Figure& f : figures_of(run))
    if (f.text != "–")
      text += fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>", f.name, f.text, f.more);
  return text + "</dl>\n";
}

// A narrow page may break a key after a dot or a bar.
std::string with_breaks(const std::string& key) {
  std::string text;
  for (const char c : key) text += c == '.' || c == '_' ? std::string(1, c) + "<wbr>" : std::string(1, c);
  return text;
}

// Figures and the settings that differ, a column a run.
std::string table(const std::vector<History>& runs, const std::vector<std::string>& names) {
  std::string text = "<div class=\"scroll\"><table><thead><tr><th></th>";
  for (size_t r = 0; r < runs.size(); r++)
    text += fmt::format("<th><i class=\"line-{}\"></i>{}</th>", r % num_colours, escaped(names[r]));
  text += "</tr></thead><tbody>";
  std::vector<std::vector<Figure>> figures;
  for (const History& run : runs) figures.push_back(figures_of(run));
  for (size_t f = 0; f < figures[0].size(); f++) {
    double best = no_number;
    bool any = false;
    for (const auto& of_run : figures) {
      any = any || of_run[f].text != "–";
      if (const double v = of_run[f].better * of_run[f].value; of_run[f].better != 0 && !(v <= best)) best = v;
    }
    if (!any) continue;
    text += fmt::format("<tr><th>{}</th>", figures[0][f].name);
    for (const auto& of_run : figures)
      text += fmt::format("<td{}>{}</td>", of_run[f].better * of_run[f].value == best ? " class=\"best\"" : "",
                          of_run[f].text);
    text += "</tr>";
  }
  text += "</tbody><tbody class=\"settings\">";
  std::set<std::string> keys;
  for (const History& run : runs)
    for (const auto& [key, value] : run.settings) keys.insert(key);
  for (const std::string& key : keys) {
    if (key == "run.output" || key == "checkpoint.directory") continue;
    const auto value_of = [&](const History& run) {
      const auto found = run.settings.find(key);
      return found == run.settings.end() ? std::string("–") : found->second;
    };
    const std::string first = value_of(runs[0]);
    if (std::ranges::all_of(runs, [&](const History& run) { return value_of(run) == first; })) continue;
    text += fmt::format("<tr><th>{}</th>", with_breaks(escaped(key)));
    for (const History& run : runs) text += fmt::format("<td>{}</td>", escaped(value_of(run)));
    text += "</tr>";
  }
  return text + "</tbody></table></div>\n";
}

std::string plots(const std::vector<History>& runs, const std::vector<std::string>& names) {
  const Extent extent = extent_of(runs);
  const auto of_steps = [&](Values History::*y, const PlotStyle& style, bool marks = false) {
    std::vector<Curve> curves;
    for (size_t r = 0; r < runs.size(); r++)
      curves.push_back({.name = runs.size() > 1 ? names[r] : "",
                        .colour = static_cast<int>(r % num_colours),
                        .course = &runs[r].steps,
                        .y = &(runs[r].*y),
                        .skipped = marks ? runs[r].skipped : std::vector<size_t>{},
                        .resumed = marks && runs.size() == 1 ? runs[r].resumed : std::vector<size_t>{}});
    return plot(curves, style, extent);
  };
  const auto of_evaluations = [&](Values History::*y, const PlotStyle& style) {
    std::vector<Curve> curves;
    for (size_t r = 0; r < runs.size(); r++)
      curves.push_back({.name = runs.size() > 1 ? names[r] : "",
                        .colour = static_cast<int>(r % num_colours),
                        .course = &runs[r].evaluations,
                        .y = &(runs[r].*y)});
    return plot(curves, style, extent);
  };
  const bool any_skipped = std::ranges::any_of(runs, [](const History& run) { return !run.skipped.empty(); });
  const bool resumed = runs.size() == 1 && !runs[0].resumed.empty();
  std::string note = "Faint: each step; strong: the mean around it.";
  if (any_skipped) note += " Marks at the bottom: skipped steps.";
  if (resumed) note += " Dashed: resumed there.";
  return of_steps(&History::loss, {.title = "Loss", .unit = "nats a token", .note = note, .noisy = true, .wide = true},
                  true) +
         of_evaluations(&History::held_out_loss, {.title = "Held-out loss", .unit = "nats a token", .dots = true}) +
         of_steps(&History::norm,
                  {.title = "Gradient norm", .unit = "before clipping", .maybe_logarithmic = true, .noisy = true}) +
         of_steps(&History::learning_rate, {.title = "Learning rate", .unit = "", .from_zero = true}) +
         of_steps(&History::tokens_per_second,
                  {.title = "Speed", .unit = "tokens a second", .from_zero = true, .noisy = true});
}

std::string bar(const std::string& name, const std::vector<std::pair<std::string, double>>& parts, double of,
                int colour) {
  std::string rects;
  double sum = 0;
  for (const auto& [part, bytes] : parts) {
    rects +=
        fmt::format("<rect class=\"area-{}\" x=\"{:.5g}\" width=\"{:.5g}\" height=\"10\"><title>{}: {}</title></rect>",
                    colour++ % num_colours, 1000 * sum / of, 1000 * bytes / of, escaped(part), gib(bytes));
    sum += bytes;
  }
  return fmt::format(
      "<p>{}<span>{}</span></p><svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-label=\"{}\">{}</svg>",
      escaped(name), gib(sum), escaped(name), rects);
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
  std::vector<AreaName> legend;
  for (size_t r = 0; r < runs.size(); r++) {
    const std::string of = runs.size() > 1 ? names[r] + ", " : "";
    if (!runs[r].planned_memory.empty()) text += bar(of + "planned", runs[r].planned_memory, most, 0);
    for (const auto& [kind, bytes] : runs[r].measured_memory)
      if (bytes > 0) text += bar(fmt::format("{}measured: {}", of, kind), {{kind, bytes}}, most, num_colours - 1);
    if (legend.empty())
      for (const auto& [part, bytes] : runs[r].planned_memory)
        legend.push_back({static_cast<int>(legend.size() % num_colours), part, runs.size() > 1 ? "" : gib(bytes)});
  }
  return text + areas_list(legend) + "</div>\n";
}

std::string legend_of(const std::vector<std::string>& names) {
  if (names.size() == 1) return "";
  std::string text = "<ul class=\"legend\">";
  for (size_t r = 0; r < names.size(); r++)
    text += fmt::format("<li><i class=\"line-{}\"></i>{}</li>", r % num_colours, escaped(names[r]));
  return text + "</ul>";
}

std::string footer(const std::vector<History>& runs) {
  std::string text = "<footer>";
  for (const History& run : runs) {
    text += fmt::format("<p><code>{}</code></p>", escaped(run.folder));
    if (!run.settings_unknown.empty())
      text += fmt::format("<p>Its settings are not compared: {}</p>", escaped(run.settings_unknown));
  }
  return text + "<p>Made by <code>megalith report</code> from metrics.jsonl.</p></footer>";
}

// {{name}} in the template; a part's own text is not looked into.
std::string filled(const std::string& page, const std::map<std::string, std::string>& parts) {
  std::string text;
  for (size_t at = 0;;) {
    const size_t open = page.find("{{", at);
    text += page.substr(at, open - at);
    if (open == std::string::npos) return text;
    const size_t close = page.find("}}", open);
    const auto part = parts.find(page.substr(open + 2, close - open - 2));
    CHECK(close != std::string::npos && part != parts.end(), "page.html asks for what is not there: {}",
          page.substr(open, 20));
    text += part->second;
    at = close + 2;
  }
}

}  // namespace

std::string report_page(const std::vector<History>& runs) {
  CHECK(!runs.empty(), "no run to report");
  const std::vector<std::string> names = names_of(runs);
  const bool one = runs.size() == 1;
  std::string title = names[0];
  for (size_t r = 1; r < names.size(); r++) title += (r + 1 < names.size() ? ", " : " and ") + names[r];
  return filled(page_html,
                {{"title", escaped(title)},
                 {"css", page_css},
                 {"js", page_js},
                 {"about", one ? about(runs[0]) : counted(static_cast<int64_t>(runs.size()), "run") + " compared"},
                 {"overview", one ? tiles(runs[0]) : table(runs, names)},
                 {"legend", legend_of(names)},
                 {"plots", plots(runs, names)},
                 {"rest", where_time_went(runs, names) + memory(runs, names) + footer(runs)}});
}

}  // namespace megalith
