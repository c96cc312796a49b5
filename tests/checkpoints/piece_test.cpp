// Pieces: the copy runs against a search over all pairs of elements, for every pair of pieces of small tensors.
#include <map>

#include "tests/checkpoints/helpers.h"

namespace megalith {
namespace {

// The global element behind each element of a piece's buffer.
std::vector<int64_t> elements_of(const Piece& p) {
  std::vector<int64_t> all;
  for (int64_t row = 0; row < p.rows(); row++)
    for (int64_t col = p.col_begin; col < p.col_end; col++) all.push_back(row * p.cols() + col);
  return {all.begin() + p.begin, all.begin() + p.end};
}

std::vector<Piece> all_pieces(const std::vector<int64_t>& shape) {
  std::vector<Piece> pieces;
  const Piece whole = whole_piece("t", shape);
  for (int64_t a = 0; a < whole.cols(); a++)
    for (int64_t b = a + 1; b <= whole.cols(); b++)
      for (int64_t begin = 0; begin <= whole.rows() * (b - a); begin++)
        for (int64_t end = begin; end <= whole.rows() * (b - a); end++)
          pieces.push_back({"t", shape, a, b, begin, end});
  return pieces;
}

std::vector<CopyRun> brute_force(const std::vector<int64_t>& source, const std::vector<int64_t>& destination) {
  std::vector<CopyRun> runs;
  for (size_t d = 0; d < destination.size(); d++)
    for (size_t s = 0; s < source.size(); s++) {
      if (source[s] != destination[d]) continue;
      const auto from = static_cast<int64_t>(s), to = static_cast<int64_t>(d);
      if (!runs.empty() && runs.back().source + runs.back().length == from &&
          runs.back().destination + runs.back().length == to)
        runs.back().length++;
      else
        runs.push_back({from, to, 1});
    }
  return runs;
}

void check_all_pairs(const std::vector<int64_t>& shape) {
  const std::vector<Piece> pieces = all_pieces(shape);
  std::vector<std::vector<int64_t>> elements;
  for (const Piece& p : pieces) elements.push_back(elements_of(p));
  int64_t wrong = 0;
  for (size_t s = 0; s < pieces.size(); s++)
    for (size_t d = 0; d < pieces.size(); d++) {
      const auto found = copy_runs(pieces[s], pieces[d]);
      const auto expected = brute_force(elements[s], elements[d]);
      if (found == expected) continue;
      if (wrong++ == 0) ADD_FAILURE() << describe(pieces[s]) << " -> " << describe(pieces[d]);
    }
  EXPECT_EQ(wrong, 0) << "of " << pieces.size() * pieces.size() << " pairs";
}

TEST(Piece, copy_runs_of_every_pair) {
  check_all_pairs({7});
  check_all_pairs({1, 4});
  check_all_pairs({4, 1});
  check_all_pairs({3, 3});
  check_all_pairs({4, 3});
  check_all_pairs({2, 2, 2});
  check_all_pairs({5, 4});
}

TEST(Piece, rows_are_all_but_the_last_dimension) {
  const Piece p = whole_piece("t", {2, 3, 4});
  EXPECT_EQ(p.rows(), 6);
  EXPECT_EQ(p.cols(), 4);
  EXPECT_EQ(p.numel(), 24);
  EXPECT_EQ(whole_piece("t", {5}).rows(), 1);
  EXPECT_EQ(flat_piece("t", {5}, 2, 4).numel(), 2);
}

TEST(Piece, contradictions_are_refused) {
  const Piece good{"parameters/h.0.ln_1.bias", {4, 6}, 2, 4, 1, 8};
  check_piece(good);
  const auto refused = [&](auto change) {
    Piece p = good;
    change(p);
    EXPECT_THROW(check_piece(p), Error) << describe(p);
  };
  refused([](Piece& p) { p.col_begin = -1; });
  refused([](Piece& p) { p.col_end = 7; });
  refused([](Piece& p) { p.col_begin = 4; });
  refused([](Piece& p) { p.begin = -1; });
  refused([](Piece& p) { p.end = 9; });
  refused([](Piece& p) { p.begin = 9; });
  refused([](Piece& p) { p.shape = {}; });
  refused([](Piece& p) { p.shape = {0, 6}; });
  refused([](Piece& p) { p.shape = {int64_t{1} << 40, int64_t{1} << 40}; });
  for (const char* name : {"", "/a", "a/", "a//b", "a/../b", ".", "a#1", "a b", "\xc3\xa4"})
    refused([&](Piece& p) { p.name = name; });
  EXPECT_THROW(copy_runs(good, whole_piece("other", {4, 6})), Error);
  EXPECT_THROW(copy_runs(good, whole_piece(good.name, {6, 4})), Error);
}

TEST(Interval, gaps) {
  using Intervals = std::vector<Interval>;
  EXPECT_EQ(gaps({}, 3), (Intervals{{0, 3}}));
  EXPECT_EQ(gaps({}, 0), Intervals{});
  EXPECT_EQ(gaps({{2, 4}, {0, 1}, {3, 5}}, 7), (Intervals{{1, 2}, {5, 7}}));
  EXPECT_EQ(gaps({{0, 9}, {1, 2}}, 9), Intervals{});
}

}  // namespace
}  // namespace megalith
