// The contracts promise this beyond single results: the random numbers, the masks, in-place use, and a few errors in
// full.
#include <gtest/gtest.h>

#include <numeric>

#include "cases.h"
#include "kernels/activation/gelu.h"
#include "kernels/attention/attention.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/philox.h"
#include "kernels/elementwise/residual.h"
#include "kernels/embedding/embedding.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/norm/layernorm.h"
#include "kernels/update/adamw.h"
#include "tensor_of.h"
#include "tests/message_of.h"

namespace megalith::test {
namespace {

// The known answers that come with the paper's implementation (Random123, kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Dropout, KeepsItsShare) {
  Stream s(World::cpu);
  const int64_t N = 200, C = 1001;
  std::vector<float> x(size_t(N * C), 1.0f), y(x.size());
  for (double p : {0.1, 0.5, 0.9}) {
    launch(s,
           ApplyDropout{.y = of(y, {N, C}), .x = of(x, {N, C}), .dropout = {.p = p, .seed = 1, .step = 2, .site = 3}});
    double kept = 0;
    for (float v : y) {
      ASSERT_TRUE(v == 0 || v == static_cast<float>(1 / (1 - p)));
      kept += v != 0;
    }
    // Five standard deviations of a binomial share.
    EXPECT_NEAR(kept / double(N * C), 1 - p, 5 * std::sqrt(p * (1 - p) / double(N * C)));
  }
}

TEST(Dropout, MaskGoesByTheGlobalRow) {
  Stream s(World::cpu);
  const int64_t N = 9, C = 37;
  std::vector<float> x(size_t(N * C), 1.0f), whole(x.size()), parts(x.size());
  const Dropout d{.p = 0.4, .seed = 5, .step = 6, .site = 7, .first_row = 100};
  launch(s, ApplyDropout{.y = of(whole, {N, C}), .x = of(x, {N, C}), .dropout = d});
  for (auto [begin, end] : {std::pair{0, 2}, {2, 3}, {3, 9}}) {
    Dropout part = d;
    part.first_row = 100 + begin;
    launch(s,
           ApplyDropout{.y = of(parts, {N, C}).rows(begin, end), .x = of(x, {N, C}).rows(begin, end), .dropout = part});
  }
  EXPECT_EQ(whole, parts);
}

TEST(Dropout, EverySeedStepSiteAndRowHasItsOwnMask) {
  Stream s(World::cpu);
  const Dropout base{.p = 0.5, .seed = 5, .step = 6, .site = 7, .first_row = 8};
  std::vector<Dropout> all(5, base);
  all[1].seed++, all[2].step++, all[3].site++, all[4].first_row++;
  std::vector<float> x(1000, 1.0f);
  std::set<std::vector<float>> masks;
  for (const Dropout& d : all) {
    std::vector<float> y(1000);
    launch(s, ApplyDropout{.y = of(y, {1, 1000}), .x = of(x, {1, 1000}), .dropout = d});
    masks.insert(y);
  }
  EXPECT_EQ(masks.size(), all.size());
}

TEST(Dropout, DrawnFromMemoryItIsTheSame) {
  Stream s(World::cpu);
  for (const Case& c : dropout_cases()) {
    const Case drawn = drawn_from_memory(c);
    Memories by_numbers(c, 0), from_memory(drawn, 0);
    c.run(s, by_numbers.tensors());
    drawn.run(s, from_memory.tensors());
    for (size_t a = 0; a < c.args.size(); a++)
      EXPECT_TRUE(by_numbers.memory[a].bits() == from_memory.memory[a].bits()) << c.name() << ", " << c.args[a].name;
  }
  std::vector<float> x(1);
  std::vector<int32_t> three(6);
  EXPECT_EQ(message_of([&] {
              launch(s,
                     ApplyDropout{.y = of(x, {1, 1}),
                                  .x = of(x, {1, 1}),
                                  .dropout = {.p = 0.5, .site = 2, .drawn = Tensor(three.data(), DType::i32, {3, 2})}});
            }),
            "dropout: drawn has 2 sites, so there is no site 2");
}

TEST(Dropout, ForwardAndBackwardDrawTheSameMask) {
  Stream s(World::cpu);
  const int64_t N = 7, C = 301;
  const size_t size = N * C;
  std::vector<float> zero(size), one(size, 1.0f), y(size), dh(size), b(301), db(301);
  const Dropout d{.p = 0.3, .seed = 5, .step = 6, .site = 7};
  launch(s, ResidualForward{
                .y = of(y, {N, C}), .x = of(zero, {N, C}), .h = of(one, {N, C}), .b = of(b, {C}), .dropout = d});
  launch(s, ResidualBackward{.dh = of(dh, {N, C}), .db = of(db, {C}), .dy = of(one, {N, C}), .dropout = d});
  EXPECT_EQ(y, dh);
}

// A batch of two sequences gives what the two give alone, and heads may be split over ranks.
TEST(Attention, MaskGoesByTheGlobalRowAndHead) {
  Stream s(World::cpu);
  const int64_t B = 2, T = 37, H = 4, D = 8, N = B * T, C = H * D;
  const Case c = attention_forward_case({B, T, H, D}, 0.3, DType::f32);
  std::vector<float> qkv(c.args[2].values.begin(), c.args[2].values.end()), out(size_t(N * C)), lse(size_t(B * H * T));
  const Dropout d{.p = 0.3, .seed = 5, .step = 6, .site = 7, .first_row = 500};
  launch(s, AttentionForward{.out = of(out, {N, C}),
                             .lse = of(lse, {B, H, T}),
                             .qkv = of(qkv, {N, 3 * C}),
                             .dims = {B, T, H, D},
                             .dropout = d});

  std::vector<float> part_out(size_t(T * C / 2)), part_lse(size_t(H / 2 * T)), part(size_t(T * 3 * C / 2));
  for (int64_t b = 0; b < B; b++)
    for (int64_t first : {int64_t{0}, H / 2}) {
      for (int64_t t = 0; t < T; t++)
        for (int64_t k = 0; k < 3; k++)
          for (int64_t i = 0; i < C / 2; i++)
            part[size_t(t * 3 * C / 2 + k * C / 2 + i)] = qkv[size_t((b * T + t) * 3 * C + k * C + first * D + i)];
      Dropout mine = d;
      mine.first_row = 500 + b * T;
      launch(s, AttentionForward{.out = of(part_out, {T, C / 2}),
                                 .lse = of(part_lse, {1, H / 2, T}),
                                 .qkv = of(part, {T, 3 * C / 2}),
                                 .dims = {1, T, H / 2, D, first},
                                 .dropout = mine});
      for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < C / 2; i++)
          ASSERT_EQ(part_out[size_t(t * C / 2 + i)], out[size_t((b * T + t) * C + first * D + i)]);
    }
}

// Scores of hundreds must not overflow: the softmax is shifted by its maximum.
TEST(Attention, LargeScores) {
  Stream s(World::cpu);
  const int64_t T = 70, D = 16;
  std::vector<float> qkv(size_t(T * 3 * D)), out(size_t(T * D)), lse(static_cast<size_t>(T));
  for (int64_t t = 0; t < T; t++)
    for (int64_t c = 0; c < D; c++) {
      qkv[size_t(t * 3 * D + c)] = 40;                                 // q
      qkv[size_t(t * 3 * D + D + c)] = t % 9 == 4 ? 40.0f : -40.0f;    // k: one in nine wins
      qkv[size_t(t * 3 * D + 2 * D + c)] = static_cast<float>(t / 9);  // v
    }
  launch(s, AttentionForward{
                .out = of(out, {T, D}), .lse = of(lse, {1, 1, T}), .qkv = of(qkv, {T, 3 * D}), .dims = {1, T, 1, D}});
  for (int64_t t = 4; t < T; t++) {
    const int64_t winners = (t - 4) / 9 + 1;
    EXPECT_NEAR(out[size_t(t * D)], double(winners - 1) / 2, 1e-5) << t;
    EXPECT_NEAR(lse[size_t(t)], 6400 + std::log(double(winners)), 1e-2) << t;
  }
}

TEST(NormalFill, AnyRangeIsTheSame) {
  Stream s(World::cpu);
  std::vector<float> whole(1000), parts(1000);
  launch(s, NormalFill{.y = of(whole, {1000}), .seed = 1, .stream = 2, .begin = 5, .std = 1.0});
  for (auto [begin, end] : {std::pair{0, 1}, {1, 6}, {6, 333}, {333, 1000}})
    launch(s,
           NormalFill{.y = of(parts, {1000}).flat(begin, end), .seed = 1, .stream = 2, .begin = 5 + begin, .std = 1.0});
  EXPECT_EQ(whole, parts);
  launch(s, NormalFill{.y = of(parts, {1000}), .seed = 1, .stream = 3, .begin = 5, .std = 1.0});
  EXPECT_NE(whole, parts);
}

TEST(NormalFill, IsNormal) {
  Stream s(World::cpu);
  const int64_t n = 400000;
  std::vector<float> y(static_cast<size_t>(n));
  launch(s, NormalFill{.y = of(y, {n}), .seed = 3, .stream = 4, .begin = 0, .std = 2.0});
  double sum = 0, square = 0, fourth = 0, neighbours = 0;
  for (int64_t i = 0; i < n; i++) {
    const double v = double(y[size_t(i)]) / 2;
    sum += v, square += v * v, fourth += v * v * v * v;
    if (i > 0) neighbours += v * double(y[size_t(i - 1)]) / 2;
  }
  const double five = 5 / std::sqrt(double(n));  // five standard deviations of a mean of n
  EXPECT_NEAR(sum / double(n), 0, five);
  EXPECT_NEAR(square / double(n), 1, five * std::sqrt(2.0));
  EXPECT_NEAR(fourth / double(n), 3, five * std::sqrt(96.0));
  EXPECT_NEAR(neighbours / double(n), 0, five);
}

TEST(InPlace, GivesTheSameBits) {
  for (DType t : {DType::f32, DType::bf16}) {
    // {case, written argument, input that may share its memory}
    struct Pair {
      Case c;
      size_t result, input;
    };
    for (const auto& [c, result, input] :
         {Pair{gelu_backward_case(33, 257, t), 0, 1}, Pair{dropout_case(33, 257, 0.3, t), 0, 1},
          Pair{residual_forward_case(33, 257, 0.3, t), 0, 2}, Pair{residual_forward_case(33, 257, 0, t), 0, 2},
          Pair{residual_backward_case(33, 257, 0, t), 0, 2}, Pair{residual_backward_case(33, 257, 0.3, t), 0, 2}}) {
      SCOPED_TRACE(c.name());
      Stream s(World::cpu);
      Memories apart(c, 0), shared(c, 0);
      c.run(s, apart.tensors());
      std::vector<Tensor> tensors = shared.tensors();
      tensors[result] = tensors[input];
      c.run(s, tensors);
      EXPECT_TRUE(apart.memory[result].bits() == shared.memory[input].bits());
      for (size_t a = 0; a < c.args.size(); a++)
        if (a != result && a != input) {
          EXPECT_TRUE(apart.memory[a].bits() == shared.memory[a].bits()) << c.args[a].name;
        }
    }
  }
}

template <class T>
void converts_in_place() {
  Stream s(World::cpu);
  for (int64_t n : {1, 2, 3, 4, 5, 64, 1000, 40011}) {
    std::vector<float> x(size_t(n) + 1);
    launch(s, NormalFill{.y = of(x, {n + 1}), .seed = 1, .stream = 2, .begin = 0, .std = 1.0});
    const std::vector<float> whole = x;
    std::vector<T> apart(static_cast<size_t>(n));
    const Tensor wide = of(x, {n + 1}).flat(0, n), front(x.data(), dtype_of<T>::value, {n});
    launch(s, Copy{.y = of(apart, {n}), .x = wide});
    launch(s, Copy{.y = front, .x = wide});
    EXPECT_EQ(std::memcmp(x.data(), apart.data(), size_t(2 * n)), 0) << n;
    for (size_t i = size_t(n + 1) / 2; i <= size_t(n); i++) ASSERT_EQ(x[i], whole[i]) << "what is behind stays";
    launch(s, Copy{.y = wide, .x = front});
    for (size_t i = 0; i < size_t(n); i++) ASSERT_EQ(x[i], static_cast<float>(apart[i])) << i << " of " << n;
    EXPECT_EQ(x.back(), whole.back());
  }
}
TEST(InPlace, ConversionsGiveTheSameBits) {
  converts_in_place<bfloat16>();
  converts_in_place<float16>();
}

// What is rounded once and added in f32 is as good for any number of terms. Sums that are rounded each time are not.
TEST(SumRows, IsOffByOneRoundingHoweverManyRowsThereAre) {
  Stream s(World::cpu);
  const int64_t n = 20000;
  std::vector<float> x(static_cast<size_t>(n)), y(x.size());
  std::vector<bfloat16> rounded_each_time(x.size());
  double before = 0;
  for (int64_t R : {1, 2, 8, 64, 512}) {
    std::vector<bfloat16> rows(static_cast<size_t>(R * n));
    std::vector<double> exact(x.size());
    launch(s, Fill{.y = of(rounded_each_time, {n}), .value = 0});
    for (int64_t r = 0; r < R; r++) {
      launch(s, NormalFill{.y = of(x, {n}), .seed = 7, .stream = uint64_t(r), .begin = 0, .std = 1.0});
      for (size_t i = 0; i < x.size(); i++) exact[i] += double(x[i]);
      const Tensor row = of(rows, {R, n}).rows(r, r + 1);
      launch(s, Copy{.y = row, .x = of(x, {n})});
      launch(s, Add{.y = of(rounded_each_time, {n}), .x = row.view({n})});
    }
    launch(s, SumRows{.y = of(y, {n}), .x = of(rows, {R, n}), .add = false});
    double size = 0, once = 0, each_time = 0;
    for (size_t i = 0; i < x.size(); i++) {
      const auto squared = [](double v) { return v * v; };
      size += squared(exact[i]);
      once += squared(double(y[i]) - exact[i]);
      each_time += squared(double(static_cast<float>(rounded_each_time[i])) - exact[i]);
    }
    EXPECT_LE(std::sqrt(once / size), 0x1p-9) << R;
    if (R >= 8) {
      EXPECT_GT(std::sqrt(each_time / size), 1.3 * before) << R;
    }
    before = std::sqrt(each_time / size);
  }
}

TEST(Gelu, FarOut) {
  Stream s(World::cpu);
  std::vector<float> x{-infinity, -1e30f, -100, -20, 0, 20, 100, 1e30f}, y(8), one(8, 1.0f), dx(8);
  launch(s, GeluForward{.y = of(y, {1, 8}), .x = of(x, {1, 8})});
  launch(s, GeluBackward{.dx = of(dx, {1, 8}), .dy = of(one, {1, 8}), .x = of(x, {1, 8})});
  for (size_t i = 1; i < 4; i++) EXPECT_NEAR(y[i], 0, 1e-6) << x[i];
  for (size_t i = 4; i < 8; i++) EXPECT_EQ(y[i], x[i]) << x[i];
  EXPECT_EQ(dx, (std::vector<float>{dx[0], 0, 0, 0, 0.5, 1, 1, 1}));
}

TEST(Errors, NameOpTensorAndNumbers) {
  Stream s(World::cpu);
  std::vector<float> x(6), y(8), wte(10), wpe(4), losses(2);
  EXPECT_EQ(message_of([&] {
              launch(s, GeluForward{.y = of(y, {2, 4}), .x = of(x, {2, 3})});
            }),
            "gelu_forward: y has shape (2, 4), expected (2, 3)");
  EXPECT_EQ(message_of([&] {
              launch(s, GeluForward{.y = of(y, {2, 3}), .x = Tensor(x.data(), DType::i32, {2, 3})});
            }),
            "gelu_forward: x is i32, expected f32, bf16 or f16");
  EXPECT_EQ(message_of([&] {
              launch(s, GeluForward{.y = Tensor(y.data(), DType::bf16, {2, 3}), .x = of(x, {2, 3})});
            }),
            "gelu_forward: y is bf16, expected f32");
  std::vector<int32_t> tokens{1, 5};
  EXPECT_EQ(message_of([&] {
              launch(s, EmbeddingForward{.y = of(y, {2, 2}),
                                         .tokens = of(tokens, {2}),
                                         .wte = of(wte, {5, 2}),
                                         .wpe = of(wpe, {2, 2}),
                                         .T = 2,
                                         .part = whole_vocabulary(5)});
            }),
            "embedding_forward: token 5 at row 1, but the vocabulary has 5");
  EXPECT_EQ(message_of([&] {
              launch(s, EmbeddingForward{.y = of(y, {2, 2}),
                                         .tokens = of(tokens, {2}),
                                         .wte = of(wte, {5, 2}),
                                         .wpe = of(wpe, {2, 2}),
                                         .T = 3,
                                         .part = whole_vocabulary(5)});
            }),
            "embedding_forward: 2 tokens do not divide into sequences of 3");
  std::vector<int32_t> targets{-2, 1};
  EXPECT_EQ(message_of([&] {
              launch(s, CrossEntropyForward{.losses = of(losses, {2}),
                                            .logits = of(x, {2, 3}),
                                            .targets = of(targets, {2}),
                                            .part = whole_vocabulary(3)});
            }),
            "cross_entropy_forward: target -2 at row 0, but the vocabulary has 3");
  EXPECT_EQ(message_of([&] {
              launch(s, ApplyDropout{.y = of(y, {2, 3}), .x = of(x, {2, 3}), .dropout = {.p = 1.0}});
            }),
            "dropout: dropout probability 1, expected 0 <= p < 1");
  EXPECT_TRUE(s.log().empty() || s.log()[0].name != std::string("gelu_forward"));
}

// What is added to all keys alike changes no probability, so its gradient, the sum of dk, is 0.
TEST(Attention, AddingToAllKeysHasNoGradient) {
  Stream s(World::cpu);
  constexpr int64_t T = 2, D = 112;  // short, so that the sum over keys adds no rounding of its own
  for (uint32_t seed = 1; seed <= 20; seed++) {
    std::vector<float> qkv(T * 3 * D), out(T * D), lse(T), dout(out), dqkv(qkv), delta(lse);
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (float& v : qkv) v = normal(generator);
    for (float& v : dout) v = normal(generator);
    const Tensor o = of(out, {T, D}), l = of(lse, {1, 1, T}), x = of(qkv, {T, 3 * D});
    launch(s, AttentionForward{.out = o, .lse = l, .qkv = x, .dims = {1, T, 1, D}});
    launch(s, AttentionBackward{.dqkv = of(dqkv, {T, 3 * D}),
                                .delta = of(delta, {1, 1, T}),
                                .dout = of(dout, {T, D}),
                                .out = o,
                                .lse = l,
                                .qkv = x,
                                .dims = {1, T, 1, D}});
    double left = 0, all = 0;
    for (int64_t d = 0; d < D; d++) {
      double sum = 0;
      for (int64_t t = 0; t < T; t++) {
        const auto dk = static_cast<double>(dqkv[size_t(t * 3 * D + D + d)]);
        sum += dk;
        all += std::abs(dk);
      }
      left += std::abs(sum);
    }
    EXPECT_LT(left / all, 5e-9) << "seed " << seed;
  }
}

}  // namespace
}  // namespace megalith::test
