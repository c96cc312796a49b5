// The tests of this folder share these: a folder that vanishes, an error's text, random text.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "kernels/system/files.h"
#include "tests/message_of.h"

namespace megalith::test {

class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "megalith-data-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr, "cannot make {}", pattern);
    folder_ = pattern;
  }
  ~Scratch() { std::filesystem::remove_all(folder_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::filesystem::path folder_;
};

#define EXPECT_ERROR(statement, ...)                                                                    \
  do {                                                                                                  \
    const std::string message = message_of([&] { statement; });                                         \
    for (const char* part : {__VA_ARGS__}) EXPECT_NE(message.find(part), std::string::npos) << message; \
  } while (false)

inline std::string gpt2_folder() { return MEGALITH_SOURCE_DIR "/../shared/tokenizers/gpt2"; }

#define SKIP_WITHOUT_GPT2()                                      \
  if (!std::filesystem::exists(::megalith::test::gpt2_folder())) \
  GTEST_SKIP() << "no GPT-2 vocabulary at " << ::megalith::test::gpt2_folder()

// Words, spaces of several kinds, contractions, several scripts, runs, and, unless it is to be a text that prepare
// takes, bytes that are not UTF-8, NUL bytes and ends of texts.
inline std::string random_text(size_t at_least, unsigned seed, bool valid = false) {
  constexpr size_t invalid_parts = 9;  // the last ones
  static const std::vector<std::string> parts = {"a",
                                                 "the",
                                                 " of",
                                                 "The",
                                                 "don't",
                                                 "'s",
                                                 "'ll",
                                                 "'",
                                                 "''",
                                                 " '",
                                                 " ",
                                                 "  ",
                                                 "\n",
                                                 "\r\n",
                                                 "\t",
                                                 "7",
                                                 "2024",
                                                 " 3.14",
                                                 "!",
                                                 "?!",
                                                 "...",
                                                 "-",
                                                 "\xc3\xa9",
                                                 "\xd0\xbc\xd0\xb8\xd1\x80",
                                                 "\xe4\xb8\x96\xe7\x95\x8c",
                                                 "\xe3\x80\x80",
                                                 "\xc2\xa0",
                                                 "\xc2\x85",
                                                 "\xe2\x80\xa8",
                                                 "\xf0\x9f\x8c\x8d",
                                                 "\xe0\xa4\xbf",
                                                 "\x1c",
                                                 std::string(1, '\0'),
                                                 "\xff",
                                                 "\xc3",
                                                 "\xe4\xb8",
                                                 "\x80",
                                                 "\xed\xa0\x80",
                                                 "\xc0\xaf",
                                                 "\xf4\x90\x80\x80",
                                                 "<|endoftext|>"};
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < at_least) {
    const std::string& part = parts[random() % (parts.size() - (valid ? invalid_parts : 0))];
    for (unsigned n = random() % 8 == 0 ? random() % 30 : 1; n > 0; n--) text += part;
  }
  return text;
}
inline std::string valid_text(size_t at_least, unsigned seed) { return random_text(at_least, seed, true); }

}  // namespace megalith::test
