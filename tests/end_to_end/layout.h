// A layout in words, one line in a table: "tensor=2 sequence pipeline=2 shard_optimizer recompute"; and the models that
// layouts are tried on:
//   tiny   2 layers, 4 heads, vocabulary 257; 8 sequences an update, 4 a microbatch: of ../shared/reference
//   small  4 layers, 8 heads, vocabulary 1000; 16 sequences an update, 4 a microbatch: the same
//   odd    8 layers, 6 heads, vocabulary 101; 12 sequences an update, 2 a microbatch, shuffled, with dropout: 3 and 6
//          divide it, and it needs no file, since what one rank makes of it is what it is held to
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {

struct Layout {
  std::string model;
  int ranks;
  std::string words;
};
// The table's rows of one model and number of ranks are trained in one job.
struct Size {
  std::string model;
  int ranks;
  auto operator<=>(const Size&) const = default;
  std::string name() const { return model + "_on_" + std::to_string(ranks); }
};
template <class Rows>
std::set<Size> sizes_of(const Rows& rows) {
  std::set<Size> sizes;
  for (const auto& row : rows) sizes.insert({row.model, row.ranks});
  return sizes;
}

// The overrides that the words stand for; layout.cpp has the list. Throws on a word that is not there.
Args overrides_of(const std::string& words);

// Returns what a layout puts to work on so many ranks: an option that changes nothing there does not count, such as
// sequence parallelism without tensor parallelism, or a strategy of sharding without data parallelism.
std::set<std::string> mechanisms_of(int ranks, const Args& overrides);
const std::set<std::string>& all_mechanisms();
// Whether no layout can have both.
bool exclude_each_other(const std::string& a, const std::string& b);

#define SKIP_WITHOUT_MODEL(model)                                   \
  if (model != "odd" && !std::filesystem::exists(reference(model))) \
  GTEST_SKIP() << "no reference at " << reference(model)

// The config and the tokens of odd in the scratch folder.
void write_odd(const Scratch& scratch);
// The config of a model in the scratch folder, and the course that its training must take.
Course prepare_model(const Scratch& scratch, const std::string& model);
// But for a long run, makes a course one of 4 steps at most, of whose weights nothing is known, and returns the
// overrides that make a training one.
Args shorten(Course& course);

// One training of several: `words` and `overrides` in the run folder `name`.
struct Training {
  std::string name, words;
  Args overrides;
};
// All of them, one after the other, in one job of so many ranks (tests/train_several), from the config of
// prepare_model. What each comes to is course_of(scratch / name).
Result train_several(const Scratch& scratch, int ranks, const std::vector<Training>& trainings);
// That each took the expected course, and prints how far off it was.
void expect_courses(const Scratch& scratch, const std::vector<Training>& trainings, const Course& expected);

}  // namespace megalith::e2e
