#include "trainer/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer/report/thinning.h"

namespace megalith {

namespace {

constexpr int columns = 400;     // in which points are thinned
constexpr double side = 1000;    // of the SVG's own square
constexpr double margin = 0.04;  // of the values' range, above and below

struct Scale {
  double low = 0, high = 1;
  bool logarithmic = false;
  double share(double value) const {
    return logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  }
};

Scale scale_of(const std::vector<Curve>& curves, const PlotStyle& style) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Curve& curve : curves)
    for (const double value : *curve.y)
      if (std::isfinite(value)) {
        low = std::min(low, value);
        high = std::max(high, value);
      }
  constexpr double widest = 1e-100;  // so that a logarithm's ticks are numbers
  if (style.maybe_logarithmic && high > 10 * low && low > high * widest) {
    const double room = std::pow(high / low, margin);
    return {low / room, high * room, true};
  }
  if (style.from_zero) return {0, high > 0 ? high * (1 + margin) : 1};
  const double room = high > low ? (high - low) * margin : std::max(std::abs(high) * margin, 1e-12);
  return {low - room, high + room};
}

struct XAxis {
  const char* name;
  std::vector<double> Abscissae::*values;
  double end, unit;  // in the units of values; what a label counts
  std::string label;
};

std::array<XAxis, 3> x_axes(const Extent& extent) {
  const auto [unit, name] = extent.hours >= 2       ? std::pair(1.0, "hours")
                            : extent.hours >= 0.034 ? std::pair(1 / 60.0, "minutes")
                                                    : std::pair(1 / 3600.0, "seconds");
  return {{{"steps", &Abscissae::step, extent.steps, 1, "steps"},
           {"tokens", &Abscissae::tokens, extent.tokens, 1, "tokens"},
           {"time", &Abscissae::hours, extent.hours, unit, std::string(name) + " of training"}}};
}

std::string points(const std::vector<Point>& all, double end, const Scale& y) {
  std::string text;
  for (const Point& p : all)
    text += fmt::format("{}{:.5g},{:.5g}", text.empty() ? "" : " ", side * p.x / end, side * (1 - y.share(p.y)));
  return text;
}

std::string y_labels(const Scale& scale) {
  std::string text;
  const std::vector<double> all = ticks(scale.low, scale.high, 5, scale.logarithmic);
  for (const double tick : all)
    text += fmt::format("<span style=\"top:{:.2f}%\">{}</span>", 100 * (1 - scale.share(tick)),
                        short_number(tick, scale.logarithmic ? tick : all.back()));
  return text;
}

std::string grid(const Scale& scale) {
  std::string text = "<path class=\"grid\" d=\"";
  for (const double tick : ticks(scale.low, scale.high, 5, scale.logarithmic))
    text += fmt::format("M0 {:.5g}H{}", side * (1 - scale.share(tick)), side);
  return text + "\"/>";
}

std::string x_labels(double end, double unit, const std::string& label) {
  std::string text = "<div class=\"x\">";
  const std::vector<double> all = ticks(0, end / unit, 4, false);
  for (const double tick : all)
    text +=
        fmt::format("<span style=\"left:{:.2f}%\">{}</span>", 100 * tick * unit / end, short_number(tick, all.back()));
  return text + fmt::format("</div><div class=\"unit\">{}</div>", label);
}

constexpr const char* open_svg =
    "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">";

std::string curve_svg(const Curve& curve, const PlotStyle& style, const XAxis& axis, const Scale& scale) {
  const std::vector<double>& x = curve.course->*axis.values;
  const auto drawn = [&](const std::vector<double>& y) {
    return points(thinned(x, y, 0, axis.end, columns), axis.end, scale);
  };
  std::string text;
  const size_t around = (x.size() + 32) / 64;
  const bool smooth = style.noisy && around > 0;
  if (smooth) text += fmt::format("<polyline class=\"each line-{}\" points=\"{}\"/>", curve.colour, drawn(*curve.y));
  text += fmt::format("<polyline class=\"line line-{}\" data-name=\"{}\" points=\"{}\"/>", curve.colour,
                      escaped(curve.name), drawn(smooth ? smoothed(*curve.y, around) : *curve.y));
  if (style.dots && x.size() <= 60) {
    std::string dots;
    for (size_t i = 0; i < x.size(); i++)
      if (std::isfinite((*curve.y)[i]))
        dots += fmt::format("M{:.5g} {:.5g}h0", side * x[i] / axis.end, side * (1 - scale.share((*curve.y)[i])));
    text += fmt::format("<path class=\"dots line-{}\" d=\"{}\"/>", curve.colour, dots);
  }
  // The step before is where the earlier start ended.
  std::string marks, ends;
  for (const size_t i : curve.skipped) marks += fmt::format("M{:.5g} {}v-40", side * x[i] / axis.end, side);
  for (const size_t i : curve.resumed) ends += fmt::format("M{:.5g} 0V{}", side * x[i - 1] / axis.end, side);
  if (!marks.empty()) text += fmt::format("<path class=\"skipped\" d=\"{}\"/>", marks);
  if (!ends.empty()) text += fmt::format("<path class=\"resumed\" d=\"{}\"/>", ends);
  return text;
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default: safe += c;
    }
  return safe;
}

std::string short_number(double value) { return short_number(value, value); }

std::string short_number(double value, double like) {
  const double size = std::abs(like);
  for (const auto& [unit, letter] : {std::pair(1e12, "T"), {1e9, "B"}, {1e6, "M"}, {1e3, "k"}})
    if (value != 0 && size >= 0.9995 * unit && (unit > 1e3 || size >= 9995))
      return fmt::format("{:.3g}{}", value / unit, letter);
  if (std::abs(value) >= 1000) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

std::vector<double> ticks(double low, double high, int count, bool logarithmic) {
  std::vector<double> all;
  if (!(high > low)) return all;
  if (logarithmic) {
    const double decades = std::log10(high / low);
    const int stride = std::max(1, static_cast<int>(std::lround(decades / count)));
    for (int power = static_cast<int>(std::floor(std::log10(low))); std::pow(10, power) <= high; power++) {
      if (power % stride != 0) continue;
      for (const int factor : {1, 2, 5})
        if (const double tick = factor * std::pow(10, power);
            (factor == 1 || decades < 2.5) && tick >= low && tick <= high)
          all.push_back(tick);
    }
    return all;
  }
  const double wanted = (high - low) / count, power = std::pow(10, std::floor(std::log10(wanted)));
  const double rest = wanted / power, step = power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10);
  for (auto i = static_cast<int64_t>(std::ceil(low / step - 1e-9)); static_cast<double>(i) * step <= high * (1 + 1e-12);
       i++)
    all.push_back(static_cast<double>(i) * step);
  return all;
}

Extent extent_of(const std::vector<History>& runs) {
  Extent extent;
  for (const History& run : runs)
    for (const Abscissae* course : {&run.steps, &run.evaluations})
      if (!course->step.empty()) {
        extent.steps = std::max(extent.steps, course->step.back());
        extent.tokens = std::max(extent.tokens, course->tokens.back());
        extent.hours = std::max(extent.hours, course->hours.back());
      }
  // So that no axis has no length.
  return {std::max(extent.steps, 1.0), std::max(extent.tokens, 1.0), std::max(extent.hours, 1e-6)};
}

std::string plot(const std::vector<Curve>& curves, const PlotStyle& style, const Extent& extent) {
  std::vector<Curve> drawn;
  for (const Curve& curve : curves)
    if (std::ranges::any_of(*curve.y, [](double value) { return std::isfinite(value); })) drawn.push_back(curve);
  if (drawn.empty()) return "";
  const Scale scale = scale_of(drawn, style);
  std::string text = fmt::format(
      "<figure class=\"plot{}\" data-low=\"{:.9g}\" data-high=\"{:.9g}\" data-log=\"{}\"><figcaption><b>{}</b> "
      "<span>{}</span></figcaption><div class=\"frame\"><div class=\"y\">{}</div>",
      style.wide ? " wide" : "", scale.low, scale.high, scale.logarithmic ? 1 : 0, style.title, style.unit,
      y_labels(scale));
  for (const XAxis& axis : x_axes(extent)) {
    text += fmt::format("<div class=\"by by-{}\" data-end=\"{:.9g}\" data-unit=\"{}\"><div class=\"area\">", axis.name,
                        axis.end / axis.unit, axis.label);
    text += fmt::format(open_svg, style.title + " by " + axis.label) + grid(scale);
    for (const Curve& curve : drawn) text += curve_svg(curve, style, axis, scale);
    text += "</svg></div>" + x_labels(axis.end, axis.unit, axis.label) + "</div>";
  }
  text += "</div>";
  if (!style.note.empty()) text += fmt::format("<p class=\"note\">{}</p>", style.note);
  return text + "</figure>\n";
}

std::string stacked_plot(const std::string& title, const std::string& unit, const std::vector<double>& steps,
                         const std::vector<Layer>& layers, double highest, const std::string& below_it) {
  const Scale scale{0, highest * (1 + margin)};
  // A value stands for the steps since the one before.
  const auto edge = [&](size_t i) {
    const double first = steps.front() - (steps.size() > 1 ? steps[1] - steps[0] : 1);
    return side * std::max(0.0, i == 0 ? first : steps[i - 1]) / steps.back();
  };
  // Mean of layer by bin, added up from below.
  const size_t bins = binned(steps).size();
  std::vector<double> below(bins, 0);
  std::string areas;
  for (const Layer& layer : layers) {
    std::string up, back;
    const std::vector<double> heights = binned(layer.y);
    for (size_t b = 0; b < bins; b++) {
      const double top = below[b] + heights[b];
      const auto at = [&](double value) { return side * (1 - std::min(1.0, scale.share(value))); };
      const double left = edge(b * steps.size() / bins), right = edge((b + 1) * steps.size() / bins);
      up += fmt::format("{}{:.5g} {:.5g}H{:.5g}", b == 0 ? "M" : "L", left, at(top), right);
      back = fmt::format("L{:.5g} {:.5g}H{:.5g}", right, at(below[b]), left) + back;
      below[b] = top;
    }
    areas += fmt::format("<path class=\"area-{}\" d=\"{}{}Z\"><title>{}</title></path>", layer.colour, up, back,
                         escaped(layer.name));
  }
  return fmt::format(
             "<figure class=\"plot\"><figcaption><b>{}</b> <span>{}</span></figcaption><div class=\"frame\">"
             "<div class=\"y\">{}</div><div><div class=\"area\">",
             escaped(title), unit, y_labels(scale)) +
         fmt::format(open_svg, escaped(title)) + areas + grid(scale) + "</svg></div>" +
         x_labels(steps.back(), 1, "steps") + "</div></div>" + below_it + "</figure>\n";
}

std::string areas_list(const std::vector<AreaName>& areas) {
  std::string text = "<ul class=\"parts\">";
  for (const AreaName& area : areas)
    text += fmt::format("<li><i class=\"area-{}\"></i>{}<b>{}</b></li>", area.colour, escaped(area.name), area.word);
  return text + "</ul>";
}

}  // namespace megalith
