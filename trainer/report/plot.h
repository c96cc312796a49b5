// A plot as a piece of HTML: lines in an SVG that stretches with the page, and around it the words and numbers, which
// keep their size. One x-axis each for steps, tokens and time; the page shows one of them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

std::string escaped(const std::string& text);  // for HTML, attributes included

// 12.3k, 4.27M, 1.2B.
std::string short_number(double value);
// In the unit that `like` has, as on an axis: 5k below 10k.
std::string short_number(double value, double like);

// Values on an axis that are easy to read: about `count` of 1, 2 or 5 times a power of ten; on a logarithmic axis
// powers of ten and, where these are few, 2 and 5 times them.
std::vector<double> ticks(double low, double high, int count, bool logarithmic);

constexpr int num_colours = 8;  // of the page: line-0 to line-7, area-0 to area-7

struct Curve {
  std::string name;
  int colour = 0;
  const Abscissae* course = nullptr;
  const std::vector<double>* y = nullptr;
  std::vector<size_t> skipped = {}, resumed = {};  // of course, to be marked
};

struct PlotStyle {
  std::string title, unit, note = {};
  bool from_zero = false;
  bool maybe_logarithmic = false;  // if values differ much
  bool noisy = false;              // each value faintly, and their mean over a while as the line
  bool dots = false;
  bool wide = false;  // over the whole page
};

// How far the axes of all plots go.
struct Extent {
  double steps = 0, tokens = 0, hours = 0;
};
Extent extent_of(const std::vector<History>& runs);

// Empty if no curve has a value.
std::string plot(const std::vector<Curve>& curves, const PlotStyle& style, const Extent& extent);

// Parts of a whole along the steps, stacked; means of stretches of them (binned()). What is above `highest` is cut.
struct Layer {
  std::string name;
  int colour = 0;
  std::vector<double> y;  // by step
};
std::string stacked_plot(const std::string& title, const std::string& unit, const std::vector<double>& steps,
                         const std::vector<Layer>& layers, double highest, const std::string& below_it);

// What the colours of areas stand for: colour, name, and a word on it.
struct AreaName {
  int colour;
  std::string name, word = {};
};
std::string areas_list(const std::vector<AreaName>& areas);

}  // namespace megalith
