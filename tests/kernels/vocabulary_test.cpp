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
  launch(s, CrossEntropyForwardBackward{.losses = of(losses, {N}),
                                        .logits = of(logits, {N, V}),
                                        .targets = of(targets, {N}),
                                        .part = whole_vocabulary(V),
                                        .scale = scale});
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
    launch(s, SoftmaxPart{.stats = of(stats.back(), {3, N}),
                          .logits = of(mine.back(), {N, part.count + padding}),
                          .targets = of(targets, {N}),
                          .part = part});
    for (int64_t n = 0; n < N; n++) {
      EXPECT_TRUE(stats.back()[at(n)] >= std::numeric_limits<float>::lowest())
          << "NaN has no order, -inf is not finite";
      max[at(n)] = std::max(max[at(n)], stats.back()[at(n)]);
    }
  }
  for (std::vector<float>& of_part : stats) {
    launch(s, MergeSoftmax{.stats = of(of_part, {3, N}), .max = of(max, {N})});
    for (int64_t i = N; i < 3 * N; i++) sum[at(i)] += of_part[at(i)];
    for (int64_t n = 0; n < N; n++) EXPECT_EQ(of_part[at(n)], max[at(n)]);
  }
  std::copy(max.begin(), max.end(), sum.begin());

  LossAndGradient<T> loss{std::vector<float>(at(N)), std::vector<T>(logits.size())};
  launch(s, CrossEntropyLoss{.losses = of(loss.losses, {N}), .stats = of(sum, {3, N}), .targets = of(targets, {N})});
  for (size_t p = 0; p < parts.size(); p++) {
    const int64_t count = parts[p].count, width = count + padding;
    launch(s, CrossEntropyGradient{.logits = of(mine[p], {N, width}),
                                   .stats = of(sum, {3, N}),
                                   .targets = of(targets, {N}),
                                   .part = parts[p],
                                   .scale = scale});
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
      launch(s, EmbeddingForward{.y = of(y, {N, C}),
                                 .tokens = ids,
                                 .wte = of(wte, {V, C}),
                                 .wpe = positions,
                                 .T = sequence,
                                 .part = whole_vocabulary(V)});
      launch(s, EmbeddingBackward{.dwte = of(dwte, {V, C}),
                                  .dwpe = of(dwpe, {sequence, C}),
                                  .dy = out_gradient,
                                  .tokens = ids,
                                  .T = sequence,
                                  .part = whole_vocabulary(V)});

      std::vector<float> sum(at(N * C));
      for (const VocabularyPart& part : split(V, num_parts)) {
        const int64_t rows = part.count + padding;
        std::vector<T> table(wte.begin() + part.first * C, wte.begin() + (part.first + part.count) * C),
            mine(at(N * C));
        table.resize(at(rows * C), T(nan));
        launch(s, EmbeddingForward{.y = of(mine, {N, C}),
                                   .tokens = ids,
                                   .wte = of(table, {rows, C}),
                                   .wpe = positions,
                                   .T = sequence,
                                   .part = part});
        for (size_t i = 0; i < sum.size(); i++) sum[i] += float(mine[i]);

        std::vector<float> my_dwte(at(rows * C), 7), my_dwpe(dwpe.size(), 7);
        launch(s, EmbeddingBackward{.dwte = of(my_dwte, {rows, C}),
                                    .dwpe = of(my_dwpe, {sequence, C}),
                                    .dy = out_gradient,
                                    .tokens = ids,
                                    .T = sequence,
                                    .part = part});
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
  launch(s, NormalFill{.y = of(whole, {rows, total}), .seed = 1, .stream = 2, .begin = 0, .std = 1.0});
  std::vector<float> again(whole.size());
  launch(
      s,
      NormalFill{
          .y = of(again, {rows, total}), .seed = 1, .stream = 2, .begin = 0, .std = 1.0, .columns = {0, total, total}});
  EXPECT_EQ(whole, again);
  for (auto [first, last] : {std::pair{0, 1}, {1, 50}, {50, 149}, {149, 150}}) {
    const int64_t count = last - first, numel = rows * count;
    std::vector<float> part(at(numel));
    for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 2}, {2, numel / 2}, {numel / 2, numel}})
      launch(s, NormalFill{.y = of(part, {numel}).flat(begin, end),
                           .seed = 1,
                           .stream = 2,
                           .begin = begin,
                           .std = 1.0,
                           .columns = {first, count, total}});
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
  EXPECT_EQ(
      message_of([&] {
        launch(s, CrossEntropyForward{.losses = of(losses, {2}), .logits = logits, .targets = ids, .part = {0, 3, 9}});
      }),
      "cross_entropy_forward: logits of 3 tokens of 9; a divided vocabulary goes through softmax_part");
  EXPECT_EQ(message_of([&] {
              launch(s, SoftmaxPart{.stats = of(stats, {3, 2}), .logits = logits, .targets = ids, .part = {0, 4, 9}});
            }),
            "softmax_part: logits has room for 3 tokens, but its part of the vocabulary has 4");
  EXPECT_EQ(message_of([&] {
              launch(s, SoftmaxPart{.stats = of(stats, {3, 2}), .logits = logits, .targets = ids, .part = {7, 3, 9}});
            }),
            "softmax_part: tokens [7, 10) are outside a vocabulary of 9");
  EXPECT_EQ(message_of([&] {
              launch(s,
                     SoftmaxPart{
                         .stats = of(stats, {3, 2}), .logits = logits, .targets = of(tokens, {2}), .part = {6, 3, 9}});
            }),
            "softmax_part: target 9 at row 1, but the vocabulary has 9");
  EXPECT_EQ(message_of([&] {
              launch(s,
                     CrossEntropyGradient{
                         .logits = logits, .stats = of(stats, {2, 3}), .targets = ids, .part = {6, 3, 9}, .scale = 1});
            }),
            "cross_entropy_gradient: stats has shape (2, 3), expected (3, 2)");
  EXPECT_EQ(message_of([&] {
              launch(s, EmbeddingForward{.y = of(y, {2, 2}),
                                         .tokens = of(tokens, {2}),
                                         .wte = of(wte, {3, 2}),
                                         .wpe = of(wpe, {2, 2}),
                                         .T = 2,
                                         .part = {6, 3, 9}});
            }),
            "embedding_forward: token 9 at row 1, but the vocabulary has 9");
  EXPECT_EQ(message_of([&] {
              launch(s, EmbeddingForward{.y = of(y, {2, 2}),
                                         .tokens = ids,
                                         .wte = of(wte, {3, 2}),
                                         .wpe = of(wpe, {2, 2}),
                                         .T = 2,
                                         .part = {5, 4, 9}});
            }),
            "embedding_forward: wte has room for 3 tokens, but its part of the vocabulary has 4");
  EXPECT_EQ(
      message_of([&] {
        launch(s, NormalFill{.y = of(z, {6}), .seed = 1, .stream = 2, .begin = 0, .std = 1.0, .columns = {2, 3, 4}});
      }),
      "normal_fill: columns [2, 5) are outside [0, 4)");
}

}  // namespace
}  // namespace megalith::test
