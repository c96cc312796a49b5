// A start reads all tokens for their largest id once; the next one does not, unless a file is another.
#include "trainer/step/checked_tokens.h"

#include <filesystem>

#include "tests/data/scratch.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

TEST(CheckedTokens, AreKnownUntilTheFileIsAnother) {
  const test::Scratch scratch;
  const std::vector<std::string> files{scratch.write("a.bin", "1234"), scratch.write("b.bin", "5678")};
  const std::string path = scratch.path("checked.json");
  CheckedTokens checked(path);
  EXPECT_FALSE(checked.below(files, 300));
  checked.add(files, 300);
  checked.write(path);
  EXPECT_TRUE(CheckedTokens(path).below(files, 300));
  EXPECT_TRUE(CheckedTokens(path).below({files[1]}, 400));
  EXPECT_FALSE(CheckedTokens(path).below(files, 299)) << "of a smaller vocabulary nothing is known";
  fs::last_write_time(files[1], fs::last_write_time(files[1]) + std::chrono::seconds(1));
  EXPECT_FALSE(CheckedTokens(path).below(files, 300));
  EXPECT_TRUE(CheckedTokens(path).below({files[0]}, 300));
  const auto time = fs::last_write_time(files[0]);
  scratch.write("a.bin", "123456");
  fs::last_write_time(files[0], time);
  EXPECT_FALSE(CheckedTokens(path).below({files[0]}, 300)) << "another size";
  fs::remove(files[0]);
  EXPECT_FALSE(CheckedTokens(path).below({files[0]}, 300));
  for (const char* text : {"", "[1]", "{\"a\": 3}", "{\"a\": {\"bytes\": \"x\"}}"}) {
    scratch.write("checked.json", text);
    EXPECT_FALSE(CheckedTokens(path).below({files[1]}, 300)) << text;
  }
}

}  // namespace
}  // namespace megalith
