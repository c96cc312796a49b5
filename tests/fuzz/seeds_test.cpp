// The kept seeds, and what a few edits make of them, through every target, as fuzz.sh does it for hours. Random numbers
// are of fixed seeds, so a failure comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>

#include "kernels/base/files.h"
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
  for (int i = 0; i < (long_tests() ? 20000 : 300); i++)
    GetParam().read(edited(seeds[random() % seeds.size()], random));
}

// Every byte and every number of a file that is right, one after the other: what is still taken for right is so for
// HDF5's library as well, which lives through it. Of a stretch of zeros, which nothing may read, the ends alone.
TEST(Structure, is_taken_for_right_where_the_library_agrees) {
  const Target& hdf5 = target("hdf5");
  const std::vector<std::string> seeds = seeds_of(hdf5);
  const std::string good = read_file(
      *std::find_if(seeds.begin(), seeds.end(), [](const std::string& path) { return path.ends_with("/good.h5"); }));
  ASSERT_TRUE(hdf5.read(good));
  const std::string zeros(24, '\0');
  int tried = 0, refused = 0;
  const auto put = [&](size_t at, std::string_view value) {
    std::string bytes = good;
    bytes.replace(at, value.size(), value);
    if (bytes == good) return;
    tried++;
    EXPECT_NO_THROW(refused += !hdf5.read(bytes)) << value.size() << " bytes at " << at << " altered, from byte "
                                                  << int{static_cast<unsigned char>(value[0])} << " on";
  };
  for (size_t at = 0; at + 8 <= good.size(); at++) {
    if (!long_tests() && at >= 8 && good.compare(at - 8, zeros.size(), zeros) == 0) continue;
    const auto byte = static_cast<unsigned char>(good[at]);
    put(at, std::string(1, static_cast<char>(byte + 1)));
    if (long_tests())
      for (const int value : {0, 255, byte - 1, byte ^ 128}) put(at, std::string(1, static_cast<char>(value)));
    if (at % 8 != 0) continue;
    uint64_t number = 0;
    std::memcpy(&number, good.data() + at, 8);
    for (const uint64_t value : {uint64_t{0}, ~uint64_t{0}, uint64_t{good.size()}, number + 8, number - 8, number + 96})
      put(at, {reinterpret_cast<const char*>(&value), 8});
  }
  EXPECT_GT(refused, tried / 4);
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Seeds, ::testing::ValuesIn(targets()),
                         [](const auto& target) { return target.param.name; });

}  // namespace
}  // namespace megalith::fuzz
