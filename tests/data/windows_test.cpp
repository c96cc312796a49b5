// Every target of a text is scored once, those at its end as well.
#include "data/samples/windows.h"

#include "data/samples/indexed_dataset_writer.h"
#include "data/samples/loader.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

using Ids = std::vector<int32_t>;

// Raw tokens first, first + 1, ...
TokenStream counted_from(const test::Scratch& scratch, uint16_t first, size_t size) {
  std::string bytes;
  for (size_t i = 0; i < size; i++) bytes += {static_cast<char>(first + i), '\0'};
  return TokenStream::open(scratch.write(fmt::format("{}.bin", first), bytes));
}

TEST(Windows, TheLastIsShorter) {
  const test::Scratch scratch;
  const Windows windows({counted_from(scratch, 1, 8), counted_from(scratch, 20, 3), counted_from(scratch, 30, 5)}, 4);
  const std::vector<std::pair<Ids, Ids>> expected = {{{1, 2, 3, 4}, {2, 3, 4, 5}},
                                                     {{5, 6, 7, 0}, {6, 7, 8, -1}},
                                                     {{20, 21, 0, 0}, {21, 22, -1, -1}},
                                                     {{30, 31, 32, 33}, {31, 32, 33, 34}}};
  ASSERT_EQ(windows.size(), 4);
  const int64_t targets[] = {0, 4, 7, 9, 13};
  for (int64_t i = 0; i <= 4; i++) EXPECT_EQ(windows.targets(i), targets[i]) << i;
  for (int64_t i = 0; i < 4; i++) {
    Ids in(4, 99), out(4, 99);
    windows.fill(i, in, out);
    EXPECT_EQ(in, expected[static_cast<size_t>(i)].first) << i;
    EXPECT_EQ(out, expected[static_cast<size_t>(i)].second) << i;
  }
}

TEST(Windows, ATargetTakesATokenBeforeIt) {
  const test::Scratch scratch;
  EXPECT_ERROR(Windows({counted_from(scratch, 1, 1)}, 4), "1.bin has 1 token, but a target needs a token before it");
}

TEST(DocumentBegins, AreThoseOfTheIndexAndOfFiles) {
  const test::Scratch scratch;
  const auto write = [&](const std::string& name, const std::vector<int32_t>& lengths) {
    IndexedDatasetWriter writer(scratch.path(name), 300);
    for (const int32_t length : lengths) {
      writer.add(Ids(static_cast<size_t>(length), 7));
      writer.end_document();
    }
    writer.finish();
    return scratch.path(name) + ".bin";
  };
  const std::vector<std::string> files{write("a", {3, 1, 4}), write("b", {5, 2})};
  const TokenStream stream = TokenStream::open("both", files);
  ASSERT_EQ(stream.size(), 15);
  EXPECT_EQ(stream.document_begins(0, 15), (std::vector<int64_t>{3, 4, 8, 13}));
  EXPECT_EQ(stream.document_begins(3, 9), (std::vector<int64_t>{1, 5})) << "behind its first token";
  EXPECT_EQ(stream.document_begins(9, 13), std::vector<int64_t>{});
  EXPECT_EQ(Loader(stream, 4, false, 1).document_begins(2), std::vector<int64_t>{});
  EXPECT_EQ(Loader(stream, 4, false, 1).document_begins(0), std::vector<int64_t>{3});
  EXPECT_EQ(Windows({stream}, 4).document_begins(3), std::vector<int64_t>{1});
  EXPECT_EQ(counted_from(scratch, 1, 8).document_begins(0, 8), std::vector<int64_t>{}) << "raw tokens know none";
}

}  // namespace
}  // namespace megalith
