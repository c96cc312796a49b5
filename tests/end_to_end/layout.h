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
void PrintTo(const Layout& layout, std::ostream* out);

// The overrides that the words stand for; layout.cpp has the list. Throws on a word that is not there.
Args overrides_of(const std::string& words);

// Letters, digits and '_' only, as GoogleTest wants names.
std::string test_name(const std::string& text);

// What a layout puts to work on so many ranks: an option that changes nothing there does not count, such as sequence
// parallelism without tensor parallelism, or a strategy of sharding without data parallelism.
std::set<std::string> mechanisms_of(int ranks, const Args& overrides);
const std::set<std::string>& all_mechanisms();
// Whether no layout can have both.
bool exclude_each_other(const std::string& a, const std::string& b);

#define SKIP_WITHOUT_MODEL(model)                                   \
  if (model != "odd" && !std::filesystem::exists(reference(model))) \
  GTEST_SKIP() << "no reference at " << reference(model)

// The config of a model in the scratch folder, and the course that its training must take.
Course prepare_model(const Scratch& scratch, const std::string& model);

// What training comes to in a layout, from the beginning, in run/.
Course trained(const Scratch& scratch, int ranks, const std::string& words, const Args& overrides = {});

}  // namespace megalith::e2e
