// The kept seeds, and what a few edits make of them, through every target, as fuzz.sh does it for hours. Random numbers
// are of fixed seeds, so a failure comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "kernels/system/files.h"
#include "tests/fuzz/targets.h"
#include "tests/long_tests.h"

namespace megalith::fuzz {

void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

namespace {

class Seeds : public ::testing::TestWithParam<Target> {};

// A few bytes changed, dropped, doubled or moved, and numbers that readers mistake.
std::string edited(std::string bytes, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return random() % n; };
  static const std::vector<std::string> fragments = {"-1",
                                                     "0",
                                                     "99999999999999999999",
                                                     "1e999",
                                                     "[",
                                                     "{",
                                                     "\"",
                                                     ".",
                                                     std::string(8, '\xff'),
                                                     std::string(8, '\0'),
                                                     std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8)};
  for (size_t edits = 1 + below(3); edits > 0; edits--) {
    const size_t at = below(bytes.size() + 1), length = std::min(below(24), bytes.size() - at);
    switch (below(6)) {
      case 0: bytes.insert(at, fragments[below(fragments.size())]); break;
      case 1: bytes.erase(at, length); break;
      case 2: bytes.insert(below(bytes.size() + 1), bytes.substr(at, length)); break;
      case 3: bytes.resize(at); break;
      case 4: {
        const std::string& fragment = fragments[below(fragments.size())];
        bytes.replace(at, std::min(fragment.size(), bytes.size() - at), fragment);
        break;
      }
      default:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random());
    }
  }
  return bytes;
}

TEST_P(Seeds, are_read_or_refused) {
  const std::vector<std::string> paths = seeds_of(GetParam());
  ASSERT_FALSE(paths.empty()) << GetParam().name;
  int good = 0;
  for (const std::string& path : paths) {
    const bool read = GetParam().read(read_file(path));
    const bool should = std::filesystem::path(path).filename().string().starts_with("good");
    EXPECT_EQ(read, should) << path;
    good += should;
  }
  EXPECT_GT(good, 0) << "without one that is read, none is tried beyond its first bytes";
}

TEST_P(Seeds, edited_are_read_or_refused) {
  std::mt19937_64 random(1);
  std::vector<std::string> seeds;
  for (const std::string& path : seeds_of(GetParam()))
    if (std::string bytes = read_file(path); bytes.size() < 100000) seeds.push_back(std::move(bytes));
  ASSERT_FALSE(seeds.empty());
  for (int64_t i = 0; i < taken("Seeds.edited_are_read_or_refused"); i++)
    GetParam().read(edited(seeds[random() % seeds.size()], random));
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Seeds, ::testing::ValuesIn(targets()),
                         [](const auto& target) { return target.param.name; });

}  // namespace
}  // namespace megalith::fuzz
