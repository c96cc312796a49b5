// A vocabulary in parts: what the parts make of it together is what the whole op makes of it. The reductions between
// the parts are done here by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "cases.h"
#include "kernels/embedding/embedding.h"
#include "kernels/loss/cross_entropy.h"
#include "tensor_of.h"
#include "tests/message_of.h"

namespace megalith::test {
namespace {

template <class T>
std::vector<T> normal(int64_t n, float scale, uint32_t seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> draw(0, scale);
  std::vector<T> v(at(n));
  for (T& x : v) x = T(draw(generator));
  return v;
}
std::vector<int32_t> integers_below(int64_t V, int64_t n) {
  std::mt19937 generator(2);
  std::vector<int32_t> v(at(n));
  for (int32_t& x : v) x = static_cast<int32_t>(generator() % static_cast<uint32_t>(V));
  return v;
}

// As even as whole tokens allow; with few of them the last parts hold none.
std::vector<VocabularyPart> split(int64_t V, int64_t num_parts) {
  std::vector<VocabularyPart> parts;
  const int64_t most = (V + num_parts - 1) / num_parts;
  for (int64_t p = 0; p < num_parts; p++) {
    const int64_t first = std::min(V, p * most);
    parts.push_back({first, std::min(most, V - first), V});
  }
  return parts;
}

// Columns of `part` from logits (N, V), and `padding` columns of NaN behind each row.
template <class T>
std::vector<T> columns_of(const std::vector<T>& logits, const VocabularyPart& part, int64_t padding) {
  std::vector<T> mine;
  for (size_t row = 0; row < logits.size(); row += at(part.total)) {
    const auto first = logits.begin() + static_cast<int64_t>(row) + part.first;
    mine.insert(mine.end(), first, first + part.count);
    mine.insert(mine.end(), at(padding), T(nan));
  }
  return mine;
}

template <class T>
struct LossAndGradient {
  std::vector<float> losses;
  std::vector<T> gradient;  // (N, V)
};

template <class T>
LossAndGradient<T> whole_loss(std::vector<T> logits, std::vector<int32_t> targets, int64_t V, double scale) {
  Stream s(World::cpu);
  const int64_t N = std::ssize(targets);
  std::vector<float> losses(at(N));
  cross_entropy_forward_backward(s, of(losses, {N}), of(logits, {N, V}), of(targets, {N}), whole_vocabulary(V), scale);
  return {losses, logits};
}

template <class T>
LossAndGradient<T> loss_in_parts(const std::vector<T>& logits, std::vector<int32_t> targets, int64_t V,
                                 int64_t num_parts, double scale) {
  Stream s(World::cpu);
  constexpr int64_t padding = 3;
  const int64_t N = std::ssize(targets);
  const std::vector<VocabularyPart> parts = split(V, num_parts);
  std::vector<std::vector<T>> mine;
  std::vector<std::vector<float>> stats;
  std::vector<float> max(at(N), -infinity), sum(at(3 * N));
  for (const VocabularyPart& part : parts) {
    mine.push_back(columns_of(logits, part, padding));
    stats.emplace_back(at(3 * N), nan);
    softmax_part(s, of(stats.back(), {3, N}), of(mine.back(), {N, part.count + padding}), of(targets, {N}), part);
    for (int64_t n = 0; n < N; n++) {
      EXPECT_TRUE(stats.back()[at(n)] >= std::numeric_limits<float>::lowest())
          << "NaN has no order, -inf is not finite";
      max[at(n)] = std::max(max[at(n)], stats.back()[at(n)]);
    }
  }
  for (std::vector<float>& of_part : stats) {
    merge_softmax(s, of(of_part, {3, N}), of(max, {N}));
    for (int64_t i = N; i < 3 * N; i++) sum[at(i)] += of_part[at(i)];
    for (int64_t n = 0; n < N; n++) EXPECT_EQ(of_part[at(n)], max[at(n)]);
  }
  std::copy(max.begin(), max.end(), sum.begin());

  LossAndGradient<T> loss{std::vector<float>(at(N)), std::vector<T>(logits.size())};
  cross_entropy_loss(s, of(loss.losses, {N}), of(sum, {3, N}), of(targets, {N}));
  for (size_t p = 0; p < parts.size(); p++) {
    const int64_t count = parts[p].count, width = count + padding;
    cross_entropy_gradient(s, of(mine[p], {N, width}), of(sum, {3, N}), of(targets, {N}), parts[p], scale);
    for (int64_t n = 0; n < N; n++) {
      const auto row = mine[p].begin() + n * width;
      std::copy(row, row + count, loss.gradient.begin() + n * V + parts[p].first);
      for (int64_t v = count; v < width; v++) EXPECT_EQ(float(row[v]), 0) << "padding";
    }
  }
  return loss;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

const std::vector<int64_t> degrees{1, 2, 3, 5};

template <class T>
class VocabularyParts : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(VocabularyParts, Types);

TYPED_TEST(VocabularyParts, LossAndGradientAreThoseOfTheWhole) {
  using T = TypeParam;
  constexpr double scale = 0.25;
  for (int64_t V : {1, 3, 7, 65, 5003})
    for (float spread : {1.0f, 8.0f})
      for (int64_t num_parts : degrees) {
        SCOPED_TRACE(fmt::format("{} tokens in {} parts, logits of {}", V, num_parts, spread));
        constexpr int64_t N = 9;
        std::vector<int32_t> targets = integers_below(V, N);
        targets[4] = -1;
        const std::vector<T> logits = normal<T>(N * V, spread);
        const LossAndGradient<T> whole = whole_loss(logits, targets, V, scale);
        const LossAndGradient<T> parts = loss_in_parts(logits, targets, V, num_parts, scale);
        if (num_parts == 1) {
          EXPECT_TRUE(same_bits(whole.losses, parts.losses));
          EXPECT_TRUE(same_bits(whole.gradient, parts.gradient));
        }
        for (size_t n = 0; n < N; n++)
          EXPECT_NEAR(parts.losses[n], whole.losses[n], 1e-6 * double(whole.losses[n])) << n;
        for (size_t i = 0; i < whole.gradient.size(); i++) {
          // bf16: the two may round to neighbours.
          const auto want = static_cast<double>(float(whole.gradient[i]));
          const double unit = std::is_same_v<T, bfloat16> ? 0x1p-7 * std::abs(want) : 0;
          ASSERT_NEAR(static_cast<double>(float(parts.gradient[i])), want, 1e-6 * scale + unit) << i;
        }
      }
}

TYPED_TEST(VocabularyParts, EmbeddingsAddUpToTheWhole) {
  using T = TypeParam;
  Stream s(World::cpu);
  constexpr int64_t B = 3, sequence = 5, N = B * sequence, C = 19, padding = 2;
  for (int64_t V : {1, 3, 11, 64})
    for (int64_t num_parts : degrees) {
      SCOPED_TRACE(fmt::format("{} tokens in {} parts", V, num_parts));
      std::vector<int32_t> tokens = integers_below(V, N);
      std::vector<T> wte = normal<T>(V * C, 1), wpe = normal<T>(sequence * C, 1, 3), dy = normal<T>(N * C, 1, 4);
      std::vector<T> y(at(N * C));
      std::vector<float> dwte(at(V * C), 7), dwpe(at(sequence * C), 7);
      const Tensor ids = of(tokens, {N}), positions = of(wpe, {sequence, C}), out_gradient = of(dy, {N, C});
      embedding_forward(s, of(y, {N, C}), ids, of(wte, {V, C}), positions, sequence, whole_vocabulary(V));
      embedding_backward(s, of(dwte, {V, C}), of(dwpe, {sequence, C}), out_gradient, ids, sequence,
                         whole_vocabulary(V));

      std::vector<float> sum(at(N * C));
      for (const VocabularyPart& part : split(V, num_parts)) {
        const int64_t rows = part.count + padding;
        std::vector<T> table(wte.begin() + part.first * C, wte.begin() + (part.first + part.count) * C),
            mine(at(N * C));
        table.resize(at(rows * C), T(nan));
        embedding_forward(s, of(mine, {N, C}), ids, of(table, {rows, C}), positions, sequence, part);
        for (size_t i = 0; i < sum.size(); i++) sum[i] += float(mine[i]);

        std::vector<float> my_dwte(at(rows * C), 7), my_dwpe(dwpe.size(), 7);
        embedding_backward(s, of(my_dwte, {rows, C}), of(my_dwpe, {sequence, C}), out_gradient, ids, sequence, part);
        EXPECT_TRUE(same_bits(my_dwpe, dwpe));
        const auto held = dwte.begin() + part.first * C;
        EXPECT_TRUE(std::equal(held, held + part.count * C, my_dwte.begin()));
        EXPECT_TRUE(std::all_of(my_dwte.begin() + part.count * C, my_dwte.end(), [](float v) { return v == 7; }));
      }
      for (size_t i = 0; i < sum.size(); i++) ASSERT_EQ(sum[i], float(y[i])) << i;
    }
}

// A logit that is not finite reaches the loss of its row, whichever part holds it, and no other row.
TEST(LossInParts, NotANumberReachesTheLoss) {
  constexpr int64_t V = 10;
  for (float bad : {nan, infinity})
    for (int64_t where = 0; where < V; where++) {
      std::vector<float> logits(2 * V, 0.5f);
      logits[at(where)] = bad;
      const LossAndGradient<float> loss = loss_in_parts(logits, {1, 1}, V, 3, 1);
      EXPECT_FALSE(std::isfinite(loss.losses[0])) << bad << " at " << where;
      EXPECT_NEAR(loss.losses[1], std::log(10.0), 1e-6);
      for (int64_t v = 0; v < V; v++) {
        EXPECT_TRUE(std::isnan(loss.gradient[at(v)])) << bad << " at " << where;
        EXPECT_TRUE(std::isfinite(loss.gradient[at(V + v)]));
      }
    }
}

TEST(LossInParts, MinusInfinityIsAProbabilityOfZero) {
  std::vector<float> logits(9, -infinity);  // nothing else in the first and in the last part
  logits[4] = logits[5] = 1;
  const LossAndGradient<float> loss = loss_in_parts(logits, {5}, 9, 3, 1);
  EXPECT_NEAR(loss.losses[0], std::log(2.0), 1e-6);
  EXPECT_EQ(loss.gradient[0], 0);
  EXPECT_NEAR(loss.gradient[4], 0.5, 1e-6);
  EXPECT_NEAR(loss.gradient[5], -0.5, 1e-6);
  EXPECT_EQ(loss.gradient[8], 0);
}

// Logits of hundreds, the largest in another part: exp of any of them alone would be infinite.
TEST(LossInParts, LargeLogits) {
  const LossAndGradient<float> loss = loss_in_parts<float>({300, 299, 400, 399, -500}, {3}, 5, 5, 1);
  const double sum = 1 + std::exp(-1.0);
  EXPECT_NEAR(loss.losses[0], 1 + std::log(sum), 1e-6);
  EXPECT_NEAR(loss.gradient[2], 1 / sum, 1e-6);
  EXPECT_NEAR(loss.gradient[3], std::exp(-1.0) / sum - 1, 1e-6);
  EXPECT_EQ(loss.gradient[0], 0);
}

TEST(NormalFill, AnyRangeOfAnyColumnsIsTheSame) {
  Stream s(World::cpu);
  constexpr int64_t rows = 7, total = 150;
  std::vector<float> whole(rows * total);
  normal_fill(s, of(whole, {rows, total}), 1, 2, 0, 1.0);
  std::vector<float> again(whole.size());
  normal_fill(s, of(again, {rows, total}), 1, 2, 0, 1.0, {0, total, total});
  EXPECT_EQ(whole, again);
  for (auto [first, last] : {std::pair{0, 1}, {1, 50}, {50, 149}, {149, 150}}) {
    const int64_t count = last - first, numel = rows * count;
    std::vector<float> part(at(numel));
    for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 2}, {2, numel / 2}, {numel / 2, numel}})
      normal_fill(s, of(part, {numel}).flat(begin, end), 1, 2, begin, 1.0, {first, count, total});
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < count; c++)
        ASSERT_EQ(part[at(r * count + c)], whole[at(r * total + first + c)]) << r << ", " << first + c;
  }
}

TEST(VocabularyErrors, NameOpTensorAndNumbers) {
  Stream s(World::cpu);
  std::vector<float> z(6), losses(2), stats(6), y(4), wte(6), wpe(4);
  std::vector<int32_t> targets{1, 2}, tokens{1, 9};
  const Tensor logits = of(z, {2, 3}), ids = of(targets, {2});
  EXPECT_EQ(message_of([&] {
              cross_entropy_forward(s, of(losses, {2}), logits, ids, {0, 3, 9});
            }),
            "cross_entropy_forward: logits of 3 tokens of 9; a divided vocabulary goes through softmax_part");
  EXPECT_EQ(message_of([&] {
              softmax_part(s, of(stats, {3, 2}), logits, ids, {0, 4, 9});
            }),
            "softmax_part: logits has room for 3 tokens, but its part of the vocabulary has 4");
  EXPECT_EQ(message_of([&] {
              softmax_part(s, of(stats, {3, 2}), logits, ids, {7, 3, 9});
            }),
            "softmax_part: tokens [7, 10) are outside a vocabulary of 9");
  EXPECT_EQ(message_of([&] {
              softmax_part(s, of(stats, {3, 2}), logits, of(tokens, {2}), {6, 3, 9});
            }),
            "softmax_part: target 9 at row 1, but the vocabulary has 9");
  EXPECT_EQ(message_of([&] {
              cross_entropy_gradient(s, logits, of(stats, {2, 3}), ids, {6, 3, 9}, 1);
            }),
            "cross_entropy_gradient: stats has shape (2, 3), expected (3, 2)");
  EXPECT_EQ(message_of([&] {
              embedding_forward(s, of(y, {2, 2}), of(tokens, {2}), of(wte, {3, 2}), of(wpe, {2, 2}), 2, {6, 3, 9});
            }),
            "embedding_forward: token 9 at row 1, but the vocabulary has 9");
  EXPECT_EQ(message_of([&] {
              embedding_forward(s, of(y, {2, 2}), ids, of(wte, {3, 2}), of(wpe, {2, 2}), 2, {5, 4, 9});
            }),
            "embedding_forward: wte has room for 3 tokens, but its part of the vocabulary has 4");
  EXPECT_EQ(message_of([&] {
              normal_fill(s, of(z, {6}), 1, 2, 0, 1.0, {2, 3, 4});
            }),
            "normal_fill: columns [2, 5) are outside [0, 4)");
}

}  // namespace
}  // namespace megalith::test
