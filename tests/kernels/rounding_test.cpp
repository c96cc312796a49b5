// What is stored in bf16 is rounded at random without bias, by draws that belong to the element.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "kernels/update/adamw.h"
#include "kernels/update/decide_update.h"
#include "tensor_of.h"

namespace megalith::test {
namespace {

float drawn(float value, uint32_t word) {
  bfloat16 rounded;
  rounded.bits = stochastic_bf16(value, word);
  return static_cast<float>(rounded);
}

TEST(StochasticRounding, GoesUpAsOftenAsTheMeanAsks) {
  for (const float value : {1.001f, -3.14159f, 6.0e-39f, 2.5e30f, 0.0f, 1.0f}) {
    const float below = drawn(value, 0), above = drawn(value, ~0u);
    double mean = 0;
    for (uint32_t low = 0; low < 65536; low++) mean += static_cast<double>(drawn(value, low << 16)) / 65536;
    EXPECT_NEAR(mean, static_cast<double>(value), std::abs(static_cast<double>(above - below)) / 65536) << value;
    if (value == 0.0f || value == 1.0f) {
      EXPECT_EQ(below, above) << "what needs no rounding";
    } else {
      EXPECT_NE(below, above);
    }
  }
}

TEST(StochasticRounding, LeavesWhatIsNotFinite) {
  for (const uint32_t word : {0u, ~0u}) {
    EXPECT_EQ(drawn(infinity, word), infinity);
    EXPECT_EQ(drawn(-infinity, word), -infinity);
    EXPECT_TRUE(std::isnan(drawn(nan, word)));
    EXPECT_TRUE(std::isnan(drawn(std::bit_cast<float>(0x7f800001u), word)));
  }
}

std::vector<double> updating_state() {
  UpdateState state{};
  state.scale = state.root = 1;
  state.rate = 1e-4;
  std::vector<double> values(UpdateState::numel);
  std::memcpy(values.data(), &state, sizeof state);
  return values;
}

// Weights of 1 that move by 1e-4 in each of 100 updates, a fortieth of the distance to the neighbour: to nearest they
// stay where they are.
TEST(StochasticRounding, KeepsWhatNearestLoses) {
  Stream s(World::cpu);
  std::vector<double> state = updating_state();
  const int64_t n = 4096;
  std::vector<float> m(size_t(n), 1.0f), v(size_t(n), 1.0f), grad(size_t(n), 1.0f);
  for (const bool stochastic : {false, true}) {
    std::vector<bfloat16> master(size_t(n), bfloat16(1.0f));
    for (int64_t step = 0; step < 100; step++)
      launch(s, AdamWUpdate{.master = of(master, {n}),
                            .m = of(m, {n}),
                            .v = of(v, {n}),
                            .grad = of(grad, {n}),
                            .state = of(state),
                            .adamw = {.learning_rate = 1e-4},
                            .rounding = {.stochastic = stochastic, .key = rounding_key(1, step)}});
    double mean = 0;
    for (const bfloat16 weight : master) mean += static_cast<double>(static_cast<float>(weight)) / double(n);
    EXPECT_NEAR(mean, stochastic ? 0.99 : 1.0, 5e-4);
    // Each step draws anew: nobody is always the one who moves.
    for (const bfloat16 weight : master) EXPECT_GT(static_cast<float>(weight), 0.94f);
  }
}

// However the range is cut, in rows of some columns of a matrix.
TEST(StochasticRounding, DrawsForTheElement) {
  Stream s(World::cpu);
  std::vector<double> state = updating_state();
  const int64_t rows = 29, total = 13;
  const auto update = [&](int64_t begin, int64_t n, Columns columns) {
    std::vector<bfloat16> master(size_t(n), bfloat16(1.0f)), m(size_t(n), bfloat16(1.0f)), v = m;
    std::vector<float> grad(size_t(n), 0.3f);
    launch(s, AdamWUpdate{.master = of(master, {n}),
                          .m = of(m, {n}),
                          .v = of(v, {n}),
                          .grad = of(grad, {n}),
                          .state = of(state),
                          .adamw = {.learning_rate = 1e-4},
                          .rounding = {.stochastic = true, .key = 5, .stream = 3, .begin = begin, .columns = columns}});
    std::vector<uint64_t> bits;
    for (size_t i = 0; i < size_t(n); i++)
      bits.push_back(uint64_t{master[i].bits} << 32 | uint64_t{m[i].bits} << 16 | v[i].bits);
    return bits;
  };
  const std::vector<uint64_t> whole = update(0, rows * total, {0, total, total});
  EXPECT_GT(std::set<uint64_t>(whole.begin(), whole.end()).size(), 4u) << "each of the three has its draws";
  for (const Columns columns : {Columns{0, total, total}, Columns{2, 5, total}, Columns{12, 1, total}})
    for (const int64_t begin : {int64_t{0}, int64_t{7}, rows * columns.count - 3}) {
      const std::vector<uint64_t> part = update(begin, rows * columns.count - begin, columns);
      for (size_t i = 0; i < part.size(); i++)
        ASSERT_EQ(part[i], whole[size_t(place_in_whole(columns, begin + int64_t(i)))]) << begin << " " << i;
    }
}

}  // namespace
}  // namespace megalith::test
