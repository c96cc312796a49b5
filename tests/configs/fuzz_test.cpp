// Damaged input either reads or is refused with megalith::Error: nothing else is thrown, nothing is undefined (this
// runs under the sanitizers too). Seeds are fixed, so a failure comes back.
#include <gtest/gtest.h>

#include <random>

#include "configs/config.h"
#include "kernels/system/check.h"
#include "tests/long_tests.h"

namespace megalith {
namespace {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  size_t below(size_t n) { return random_() % n; }

  // A few edits: bytes changed, dropped, doubled, pieces moved, and fragments that mean something to a parser.
  std::string mutate(std::string text) {
    static constexpr std::string_view fragments[] = {"[",
                                                     "]",
                                                     "[[model]]\n",
                                                     "\"",
                                                     "'''",
                                                     "\"\"\"",
                                                     "=",
                                                     ".",
                                                     "\n",
                                                     "#",
                                                     "{",
                                                     "}",
                                                     ",",
                                                     "nan",
                                                     "-inf",
                                                     "1e999",
                                                     "-1",
                                                     "0x",
                                                     "9223372036854775807",
                                                     "99999999999999999999",
                                                     "1979-05-27T07:32:00Z",
                                                     "true",
                                                     "\\u0000",
                                                     "\\uD800",
                                                     "group_",
                                                     "train:",
                                                     "\xff",
                                                     "\xef\xbb\xbf",
                                                     "model",
                                                     "[model.layers]\n",
                                                     "= [[[[",
                                                     "a.b.c.d = 1\n"};
    for (size_t edits = 1 + below(4); edits > 0; --edits) {
      const size_t at = below(text.size() + 1);
      const size_t length = std::min(below(24), text.size() - at);
      switch (below(5)) {
        case 0: text.insert(at, fragments[below(std::size(fragments))]); break;
        case 1: text.erase(at, length); break;
        case 2: text.insert(below(text.size() + 1), text.substr(at, length)); break;
        case 3: text.insert(at, 1, static_cast<char>(random_())); break;
        default:
          if (at < text.size()) text[at] = static_cast<char>(random_());
      }
    }
    return text;
  }

 private:
  std::mt19937_64 random_;
};

// True when it was read. What is read must also print and read back the same.
bool reads(std::string_view toml, const std::vector<std::string>& overrides) {
  Config config;
  try {
    config = parse_config(toml, "fuzz", overrides);
  } catch (const Error& error) {
    EXPECT_STRNE(error.what(), "");
    return false;
  }
  EXPECT_EQ(parse_config(to_toml(config), "printed"), config) << to_toml(config);
  return true;
}

TEST(Fuzz, DamagedFiles) {
  const std::string good = to_toml(resolve(Config{}));
  // Without comments, so that most edits land where they mean something.
  std::string bare;
  bool comment = false;
  for (const char c : good) {
    comment = c == '#' || (comment && c != '\n');
    if (!comment) bare += c;
  }
  ASSERT_TRUE(reads(bare, {}));
  Mutator mutator(11);
  int read = 0;
  const int64_t cases = taken("Fuzz.DamagedFiles");
  for (int64_t i = 0; i < cases; ++i) {
    SCOPED_TRACE(i);
    read += reads(mutator.mutate(i % 2 ? good : bare), {});
    if (HasFailure()) return;
  }
  // Else the mutations are so wild, or so tame, that nothing is tested.
  EXPECT_GT(read, cases / 20);
  EXPECT_LT(read, cases * 19 / 20);
}

TEST(Fuzz, DamagedOverrides) {
  const std::string good[] = {"model.layers=3",
                              "run.output=runs/x",
                              "optimizer.learning_rate = 1e-3",
                              "memory.activation_checkpointing=\"each\"",
                              "data.shuffle=false",
                              "data.tokenizer=train:4096"};
  Mutator mutator(12);
  int read = 0;
  const int64_t cases = taken("Fuzz.DamagedOverrides");
  for (int64_t i = 0; i < cases; ++i) {
    SCOPED_TRACE(i);
    read += reads("", {mutator.mutate(good[mutator.below(std::size(good))])});
    if (HasFailure()) return;
  }
  EXPECT_GT(read, cases / 50);
  EXPECT_LT(read, cases * 19 / 20);
}

TEST(Fuzz, NoiseAndDepth) {
  std::mt19937_64 random(13);
  for (int i = 0; i < 500; ++i) {
    std::string noise(random() % 200, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    reads(noise, {});
    reads("", {noise});
    if (HasFailure()) return;
  }
  EXPECT_FALSE(reads("a = " + std::string(100000, '['), {}));
  EXPECT_FALSE(reads(std::string(100000, 'a') + " = 1", {}));
  EXPECT_FALSE(reads("", {"model.layers=" + std::string(100000, '{')}));
}

}  // namespace
}  // namespace megalith
