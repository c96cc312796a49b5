// The list of tests/long_tests.h against those that read it: the compiler refuses a name that the list does not have,
// and an entry that nobody reads is found here.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "kernels/system/files.h"
#include "tests/long_tests.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

// Returns what is below tests/, without the list and this file.
std::string sources() {
  std::string all;
  for (const auto& entry : fs::recursive_directory_iterator(MEGALITH_SOURCE_DIR "/tests")) {
    const std::string name = entry.path().filename();
    const bool source = name.ends_with(".h") || name.ends_with(".cpp") || name == "CMakeLists.txt";
    if (source && !name.starts_with("long_tests")) all += read_file(entry.path());
  }
  return all;
}

// Entries that no `taken(` of the text names.
std::vector<std::string> unread(const std::string& text) {
  std::vector<std::string> names;
  for (const auto& entry : long_tests::entries)
    if (const std::string name(entry.name); text.find("taken(\"" + name + "\"") == std::string::npos)
      names.push_back(name);
  return names;
}

TEST(LongTests, EveryEntryIsReadAndHasANameAReasonAndADifference) {
  EXPECT_EQ(unread(sources()), std::vector<std::string>{});
  std::set<std::string_view> names;
  for (const auto& entry : long_tests::entries) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " is there twice";
    EXPECT_NE(entry.by_day, entry.by_night) << entry.name;
    EXPECT_FALSE(entry.what.empty()) << entry.name;
  }
}

TEST(LongTests, AnEntryThatNobodyReadsIsFound) {
  std::string text = sources();
  const std::string first(long_tests::entries[0].name);
  for (size_t at; (at = text.find("taken(\"" + first)) != std::string::npos;) text.erase(at, 5);
  EXPECT_EQ(unread(text), std::vector<std::string>{first});
}

// Whoever asks whether it is night goes past the list.
TEST(LongTests, NobodyAsksButTheList) {
  const std::string text = sources();
  EXPECT_EQ(text.find("is_night"), std::string::npos);
  const std::string variable = "MEGALITH_LONG_TESTS";
  const size_t once = text.find(variable);  // in CMakeLists.txt
  EXPECT_NE(once, std::string::npos);
  EXPECT_EQ(text.find(variable, once + 1), std::string::npos);
}

}  // namespace
}  // namespace megalith
