// The files of kernels/linear/gemm_tables.
#include "kernels/linear/gemm_table.h"

#include <gtest/gtest.h>

#include <array>

#include "kernels/system/check.h"
#include "tests/message_of.h"

namespace megalith {
namespace {

TEST(GemmTables, WhatIsNoTableIsRefusedWithWhatIsWrong) {
  const GemmTable table{
      .gpu = "A \"GPU\"",
      .library = 130100,
      .driver = "13.0",
      .date = "2026-11-24",
      .choices = {{.shape = {.M = 1, .N = 2, .K = 3, .gelu = true, .input = DType::bf16, .output = DType::bf16},
                   .algorithm = {1, ~uint64_t{0}},
                   .workspace = 4,
                   .seconds = 0.5,
                   .first_seconds = 0.75,
                   .candidates = 8,
                   .what = "tile 7"},
                  {.shape = {.M = 2, .N = 2, .K = 3}, .candidates = 1, .what = ""}}};
  const std::string good = to_text(table);
  EXPECT_EQ(read_gemm_table(good, "good"), table);
  const auto said = [&](const std::string& part, const std::string& instead) {
    std::string text = good;
    const size_t at = text.find(part);
    CHECK(at != text.npos, "no {}", part);
    return message_of([&] { read_gemm_table(text.replace(at, part.size(), instead), "bad.json"); });
  };
  for (const auto& [part, instead, words] : std::vector<std::array<std::string, 3>>{
           {"\"format\": 1", "\"format\": 2", "unsupported format 2 (expected 1)"},
           {"[1,2,3]", "[1,2]", "MNK has 2 numbers"},
           {"[1,2,3]", "[1,0,3]", ""},
           {"\"gelu\"", "\"gelo\"", "unknown attribute \"gelo\" of a product"},
           {"\"bf16\"", "\"bf8\"", "unknown type \"bf8\" of a product"},
           {"\"ffffffffffffffff\"", "\"1ffffffffffffffff\"", "is not a 64-bit hexadecimal number"},
           {"\"ffffffffffffffff\"", "\"-1\"", "is not a 64-bit hexadecimal number"},
           {"\"ffffffffffffffff\",", "", "an algorithm has 7 words, not 8"},
           {"\"alignment\":16", "\"alignment\":32", ""},
           {"\"choices\"", "\"choice\"", "choices"},
           {"]}", "", ""}}) {
    const std::string message = said(part, instead);
    EXPECT_TRUE(message.starts_with("bad.json is not a table of GEMM choices: ")) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
  GemmTable twice = table;
  twice.choices[1].shape = twice.choices[0].shape;
  EXPECT_NE(
      message_of([&] { read_gemm_table(to_text(twice), "bad.json"); }).find("two choices for one product of 1 x 2"),
      std::string::npos);
}

}  // namespace
}  // namespace megalith
