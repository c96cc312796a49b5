// The conformance suite of communicators: what communicator.h promises of what arrives, for every kind of group, and
// where there is a GPU, real or simulated, for those of its tensors as well. Sizes are odd, some beyond what a message
// carries eagerly. What it promises of transfers under way is in transfers_test.cpp.
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "tests/message_of.h"
#include "tests/mpi/conformance.h"

namespace megalith {
namespace {

INSTANTIATE_TEST_SUITE_P(Of, Conformance, testing::ValuesIn(kinds()), [](const auto& p) { return p.param.name; });

TEST(Kinds, OnGpusAsWell) {
  if (device::count() == 0)
    GTEST_SKIP() << "no GPU here (or a build without CUDA): NCCL and what is staged through the host are not tested";
}

TEST_P(Conformance, AllGatherPutsPartsInOrder) {
  for (DType dtype : all_types)
    for (int64_t n : transfer_sizes)
      for (bool in_place : {false, true}) {
        const Owned out = owned(dtype, n * size_), separate = owned(dtype, n);
        const Tensor in = in_place ? out->flat(rank_ * n, (rank_ + 1) * n) : Tensor(separate);
        write_values(in, rank_);
        c_.all_gather(s_, out, in).wait();
        expect_values(out, [&](int64_t i) { return value(static_cast<int>(i / n), i % n); });
      }
}

// Weights of products in 8 bits. Their numbers are multiples of 16.
TEST_P(Conformance, AllGatherOfEightBits) {
  for (const int64_t n : {16, 1008}) {
    const Owned out = owned(DType::e4m3, n * size_), in = owned(DType::e4m3, n);
    write_values(in, rank_);
    c_.all_gather(s_, out, in).wait();
    expect_values(out, [&](int64_t i) { return value(static_cast<int>(i / n), i % n); });
  }
}

TEST_P(Conformance, ReduceScatterGivesEachItsPartOfTheSum) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t n : transfer_sizes) {
      const Owned in = owned(dtype, n * size_), out = owned(dtype, n);
      write(in, [&](int64_t i) { return small_value(rank_, i); });
      c_.reduce_scatter(s_, out, in).wait();
      expect_values(out, [&](int64_t i) {
        double sum = 0;
        for (int r = 0; r < size_; r++) sum += small_value(r, rank_ * n + i);
        return sum;
      });
      expect_values(in, [&](int64_t i) { return small_value(rank_, i); });  // the input stays
    }
}

// In groups of two neighbours, the last of what is left.
TEST_P(Conformance, PartsOfAGatherAndOfAScatterMakeUpTheWhole) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t n : transfer_sizes) {
      const Owned in = owned(dtype, n), all = owned(dtype, n * size_), whole = owned(dtype, n * size_),
                  sum = owned(dtype, n);
      write_values(in, rank_);
      write(whole, [&](int64_t i) { return small_value(rank_, i); });
      std::vector<Pending> under_way;
      for (int64_t first = 0; first < size_; first += 2) {
        const Interval of{first, std::min<int64_t>(first + 2, size_)};
        const Interval elements{of.begin * n, of.end * n};
        under_way.push_back(c_.all_gather_of(s_, of, all->flat(elements.begin, elements.end), in));
        under_way.push_back(c_.reduce_scatter_to(s_, of, sum, whole->flat(elements.begin, elements.end)));
      }
      for (Pending& transfer : under_way) transfer.wait();
      expect_values(all, [&](int64_t i) { return value(static_cast<int>(i / n), i % n); });
      expect_values(sum, [&](int64_t i) {
        double expected = 0;
        for (int r = 0; r < size_; r++) expected += small_value(r, rank_ * n + i);
        return expected;
      });
      expect_values(whole, [&](int64_t i) { return small_value(rank_, i); });  // the input stays
    }
}

// MPI adds in the order of the ranks, however the sum is cut.
TEST_P(Conformance, PartsOfAScatterHaveTheBitsOfTheWhole) {
  if (!GetParam().name.starts_with("mpi")) GTEST_SKIP() << "MPI alone promises it";
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const int64_t n = 4099;
    const Owned whole = owned(dtype, n * size_), sum = owned(dtype, n), parts = owned(dtype, n);
    write(whole, [&](int64_t i) { return std::sin(static_cast<double>(rank_ * 1000003 + i)); });
    c_.reduce_scatter(s_, sum, whole).wait();
    for (int64_t r = 0; r < size_; r++)
      c_.reduce_scatter_to(s_, {r, r + 1}, parts, whole->flat(r * n, (r + 1) * n)).wait();
    EXPECT_EQ(bytes_of(parts), bytes_of(sum));
  }
}

TEST_P(Conformance, AllToAllGivesEachItsPieces) {
  for (DType dtype : all_types)
    for (int64_t n : transfer_sizes) {
      const Owned in = owned(dtype, n * size_), out = owned(dtype, n * size_);
      write_values(in, rank_);
      c_.all_to_all(s_, out, in).wait();
      expect_values(out, [&](int64_t i) { return value(static_cast<int>(i / n), rank_ * n + i % n); });
      expect_values(in, [&](int64_t i) { return value(rank_, i); });  // the input stays
    }
}

// Rank a sends rank b (2 a + b) % 3 times n elements, so some get nothing.
TEST_P(Conformance, AllToAllExchangesUnlikeParts) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t n : transfer_sizes) {
      std::vector<std::vector<int64_t>> by(static_cast<size_t>(size_));
      for (int a = 0; a < size_; a++)
        for (int b = 0; b < size_; b++) by[static_cast<size_t>(a)].push_back((2 * a + b) % 3 * n);
      const AllToAllParts parts = AllToAllParts::of(by, rank_);
      const auto sum = [](const std::vector<int64_t>& all) {
        return std::accumulate(all.begin(), all.end(), int64_t{0});
      };
      const Owned in = owned(dtype, sum(parts.sent)), out = owned(dtype, sum(parts.received));
      write_values(in, rank_);
      c_.all_to_all(s_, out, in, parts).wait();
      std::vector<double> expected;
      for (int from = 0; from < size_; from++) {
        const std::vector<int64_t>& theirs = by[static_cast<size_t>(from)];
        const int64_t begin = std::accumulate(theirs.begin(), theirs.begin() + rank_, int64_t{0});
        for (int64_t i = 0; i < theirs[static_cast<size_t>(rank_)]; i++) expected.push_back(value(from, begin + i));
      }
      expect_values(out, [&](int64_t i) { return expected[static_cast<size_t>(i)]; });
      // And back.
      c_.all_to_all(s_, in, out, parts.back()).wait();
      expect_values(in, [&](int64_t i) { return value(rank_, i); });
    }
}

// An empty tensor may have the address of another: rank 0 sends nothing, and gets from all others.
TEST_P(Conformance, AllToAllOfNothingIsNotOneInPlace) {
  if (size_ == 1) GTEST_SKIP() << "nobody to get from";
  constexpr int64_t n = 3;
  std::vector<std::vector<int64_t>> by(static_cast<size_t>(size_), std::vector<int64_t>(static_cast<size_t>(size_), n));
  by[0].assign(by[0].size(), 0);
  const Owned out = owned(DType::f32, n * (size_ - 1)), mine = owned(DType::f32, n * size_);
  write_values(mine, rank_);
  const Tensor in = rank_ == 0 ? out->flat(0, 0) : Tensor(mine);
  c_.all_to_all(s_, out, in, AllToAllParts::of(by, rank_)).wait();
  expect_values(out, [&](int64_t i) { return value(static_cast<int>(i / n) + 1, rank_ * n + i % n); });
}

TEST_P(Conformance, AllReduceSumsAndFindsTheMaximum) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (int64_t n : transfer_sizes)
      for (Reduce op : {Reduce::sum, Reduce::max}) {
        const Owned data = owned(dtype, n);
        write(data, [&](int64_t i) { return small_value(rank_, i); });
        c_.all_reduce(s_, data, op).wait();
        expect_values(data, [&](int64_t i) {
          double expected = small_value(0, i);
          for (int r = 1; r < size_; r++)
            expected = op == Reduce::sum ? expected + small_value(r, i) : std::max(expected, small_value(r, i));
          return expected;
        });
      }
}

// 8 bits of significand, or 11: each partial sum is off by at most 2^-8 or 2^-11 of itself, and of nothing but
// itself. A sum that was cut off instead of rounded would drift to one side by half of that.
TEST_P(Conformance, SumsIn16BitsRoundToNearest) {
  for (const auto& [dtype, half_unit] : {std::pair{DType::bf16, 0x1p-8}, {DType::f16, 0x1p-11}}) {
    const int64_t n = 70001;
    std::vector<double> exact(static_cast<size_t>(n)), mine(static_cast<size_t>(n));
    for (int r = 0; r < size_; r++) {
      std::mt19937 random(static_cast<unsigned>(r));
      std::uniform_real_distribution<float> uniform(1, 2);
      for (size_t i = 0; i < exact.size(); i++) {
        const float drawn = uniform(random);
        const auto x = static_cast<double>(dtype == DType::bf16 ? static_cast<float>(bfloat16(drawn))
                                                                : static_cast<float>(float16(drawn)));
        exact[i] += x;
        if (r == rank_) mine[i] = x;
      }
    }
    const Owned whole = owned(dtype, n * size_), part = owned(dtype, n), data = owned(dtype, n);
    const auto element = [&](int64_t i) { return mine[static_cast<size_t>(i % n)]; };
    write(data, element);
    write(whole, element);
    c_.all_reduce(s_, data, Reduce::sum).wait();
    c_.reduce_scatter(s_, part, whole).wait();
    for (const Owned* sum : {&data, &part}) {
      const std::vector<double> found = read(*sum);
      double drift = 0;
      for (size_t i = 0; i < found.size(); i++) {
        const double off = found[i] / exact[i] - 1;
        ASSERT_LE(std::abs(off), (size_ - 1) * half_unit) << i;
        drift += off / static_cast<double>(n);
      }
      EXPECT_LE(std::abs(drift), (size_ - 1) * half_unit / 16);
    }
  }
}

// Sums round, and must round to the same bits on every rank, and the next time.
TEST_P(Conformance, AllReduceGivesEveryRankTheSameBitsEveryTime) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t n : transfer_sizes) {
      std::vector<char> first;
      for (int round = 0; round < 3; round++) {
        std::mt19937 random(static_cast<unsigned>(rank_));
        std::normal_distribution<float> normal;
        const Owned data = owned(dtype, n), all = owned(dtype, n * size_);
        write(data, [&](int64_t) { return static_cast<double>(normal(random)); });
        c_.all_reduce(s_, data, Reduce::sum).wait();
        c_.all_gather(s_, all, data).wait();
        const std::vector<char> mine = bytes_of(data), theirs = bytes_of(all);
        for (size_t r = 0; r < static_cast<size_t>(size_); r++)
          ASSERT_EQ(std::memcmp(theirs.data() + r * mine.size(), mine.data(), mine.size()), 0);
        if (round == 0) first = mine;
        ASSERT_EQ(mine, first);
      }
    }
}

TEST_P(Conformance, ReduceScatterGivesTheSameBitsEveryTime) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t n : transfer_sizes) {
      std::vector<char> first;
      for (int round = 0; round < 3; round++) {
        std::mt19937 random(static_cast<unsigned>(rank_));
        std::normal_distribution<float> normal;
        const Owned in = owned(dtype, n * size_), out = owned(dtype, n);
        write(in, [&](int64_t) { return static_cast<double>(normal(random)); });
        c_.reduce_scatter(s_, out, in).wait();
        const std::vector<char> bytes = bytes_of(out);
        if (round == 0) first = bytes;
        ASSERT_EQ(bytes, first);
      }
    }
}

// On the host an element's sum is that of its terms in the order of ranks, wherever the tensor is cut and however large
// it is.
TEST_P(Conformance, HostSumsAddInTheOrderOfRanks) {
  if (GetParam().world != World::cpu) GTEST_SKIP() << "NCCL adds in an order of its own";
  for (int64_t n : transfer_sizes) {
    std::vector<std::vector<float>> terms;
    for (int r = 0; r < size_; r++) {
      std::mt19937 random(static_cast<unsigned>(r));
      std::normal_distribution<float> normal;
      terms.emplace_back(static_cast<size_t>(n * size_));
      for (float& x : terms.back()) x = normal(random);
    }
    const auto sum = [&](int64_t i) {
      float total = terms[0][static_cast<size_t>(i)];
      for (size_t r = 1; r < terms.size(); r++) total += terms[r][static_cast<size_t>(i)];
      return total;
    };
    const auto mine = [&](int64_t i) { return terms[static_cast<size_t>(rank_)][static_cast<size_t>(i)]; };
    const Owned all = owned(DType::f32, n * size_), in = owned(DType::f32, n * size_), out = owned(DType::f32, n);
    write(all, mine);
    write(in, mine);
    c_.all_reduce(s_, all, Reduce::sum).wait();
    c_.reduce_scatter(s_, out, in).wait();
    expect_values(all, sum);
    expect_values(out, [&](int64_t i) { return sum(rank_ * n + i); });
  }
}

TEST_P(Conformance, BroadcastFromEveryRoot) {
  for (DType dtype : all_types)
    for (int64_t n : transfer_sizes)
      for (int root = 0; root < size_; root++) {
        const Owned data = owned(dtype, n);
        if (rank_ == root) write_values(data, root, 5);
        c_.broadcast(s_, data, root).wait();
        expect_values(data, [&](int64_t i) { return value(root, 5 + i); });
      }
}

// Round the ring, in both directions at once; messages between two ranks arrive in the order they were sent.
TEST_P(Conformance, MessagesGoRoundTheRing) {
  if (size_ == 1 || !GetParam().crosses) return;
  const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
  for (DType dtype : all_types)
    for (int64_t n : transfer_sizes) {
      const Owned first = owned(dtype, n), second = owned(dtype, n + 2), back = owned(dtype, 1);
      const Owned got_first = owned(dtype, n), got_second = owned(dtype, n + 2), got_back = owned(dtype, 1);
      write_values(first, rank_);
      write_values(second, rank_, 11);
      write_values(back, rank_, 3);
      // Issued in the same order everywhere; none is waited for before all are under way.
      Pending sends[] = {c_.send(s_, first, next), c_.send(s_, second, next), c_.send(s_, back, previous)};
      if (size_ > 2) {
        Pending receives[] = {c_.recv(s_, got_first, previous), c_.recv(s_, got_second, previous),
                              c_.recv(s_, got_back, next)};
        for (Pending& p : receives) p.wait();
      } else {
        // Two ranks: next and previous are one, and its mail comes in the order above.
        c_.recv(s_, got_first, previous).wait();
        c_.recv(s_, got_second, previous).wait();
        c_.recv(s_, got_back, next).wait();
      }
      for (Pending& p : sends) p.wait();
      expect_values(got_first, [&](int64_t i) { return value(previous, i); });
      expect_values(got_second, [&](int64_t i) { return value(previous, 11 + i); });
      expect_values(got_back, [&](int64_t) { return value(next, 3); });
    }
}

// Along the pipeline messages cross in every kind, whatever each rank begins with; none is waited for before all are
// under way.
TEST_P(Conformance, MessagesOfAPipelineFlowBothWays) {
  const Group forward = c_.split("forward", num(Channel::forward), 0, rank_),
              backward = c_.split("backward", num(Channel::backward), 0, rank_);
  if (size_ == 1) return;
  const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
  for (int64_t n : transfer_sizes) {
    std::vector<Owned> tensors;
    for (int i = 0; i < 12; i++) tensors.push_back(owned(DType::bf16, n + i / 4));
    std::vector<Pending> under_way;
    for (int round = 0; round < 3; round++) {
      Owned *out = &tensors[static_cast<size_t>(4 * round)], *back = out + 1, *in = out + 2, *in_back = out + 3;
      write_values(*out, rank_, round);
      write_values(*back, rank_, 50 + round);
      const std::vector<std::function<Pending()>> begin{
          [&] { return forward->send(s_, *out, next); }, [&] { return forward->recv(s_, *in, previous); },
          [&] { return backward->send(s_, *back, previous); }, [&] { return backward->recv(s_, *in_back, next); }};
      const size_t orders[] = {0, static_cast<size_t>(rank_ % 4), 1};  // all send first, mixed, all receive first
      for (size_t i = 0; i < 4; i++) under_way.push_back(begin[i ^ orders[round]]());
    }
    for (Pending& p : under_way) p.wait();
    for (int round = 0; round < 3; round++) {
      expect_values(tensors[static_cast<size_t>(4 * round + 2)], [&](int64_t i) { return value(previous, round + i); });
      expect_values(tensors[static_cast<size_t>(4 * round + 3)],
                    [&](int64_t i) { return value(next, 50 + round + i); });
    }
  }
}

TEST_P(Conformance, SplitsIntoGroupsInTheOrderOfTheKey) {
  // Odd and even ranks, backwards.
  const Group part = c_.split("part", num(Channel::between_nodes), rank_ % 2, -rank_);
  EXPECT_EQ(part->name(), "part");
  if (part->size() > 1) {
    EXPECT_EQ(part->channel(), num(Channel::between_nodes));
  }
  const int members = (size_ + 1 - rank_ % 2) / 2;
  ASSERT_EQ(part->size(), members);
  EXPECT_EQ(part->rank(), members - 1 - rank_ / 2);
  const Owned in = owned(DType::i32, 1), out = owned(DType::i32, members);
  write(in, [&](int64_t) { return rank_; });
  part->all_gather(s_, out, in).wait();
  expect_values(out, [&](int64_t m) { return static_cast<double>(2 * (members - 1 - m) + rank_ % 2); });
}

TEST_P(Conformance, WrongCallsAreRefusedBeforeAnythingIsSent) {
  const Owned f = owned(DType::f32, size_ * 3), f1 = owned(DType::f32, 3), d = owned(DType::f64, 3),
              d_whole = owned(DType::f64, size_ * 3), b1 = owned(DType::bf16, 3), i = owned(DType::i32, 3),
              odd = owned(DType::f32, size_ * 3 + 1);
  const auto refused = [&](const std::string& words, const std::function<void()>& call) {
    const std::string message = message_of(call);
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_EQ(message.rfind(c_.name() + ": ", 0), 0u) << message << " does not begin with the group's name";
  };
  refused("all_gather", [&] { c_.all_gather(s_, odd, f1); });
  refused("all_gather", [&] { c_.all_gather(s_, f, b1); });
  refused("reduce_scatter", [&] { c_.reduce_scatter(s_, f1, odd); });
  refused("f32, bf16 and f16 of equal parts", [&] { c_.reduce_scatter(s_, d, d_whole); });
  refused("reduce_scatter", [&] { c_.reduce_scatter(s_, b1, f); });
  refused("all_to_all", [&] { c_.all_to_all(s_, odd, f); });
  refused("all_to_all", [&] { c_.all_to_all(s_, d_whole, f); });
  refused("in parts for", [&] { c_.all_to_all(s_, f, f, AllToAllParts{}); });
  if (size_ > 1) refused("supported are equal parts", [&] { c_.all_to_all(s_, odd, odd); });
  refused("all_reduce of i32; f32, f64, bf16 and f16 are supported", [&] { c_.all_reduce(s_, i, Reduce::sum); });
  refused(fmt::format("broadcast from rank {}", size_), [&] { c_.broadcast(s_, f, size_); });
  refused("broadcast from rank -1", [&] { c_.broadcast(s_, f, -1); });
  refused("sends to rank", [&] { c_.send(s_, f, rank_); });
  refused("sends to rank", [&] { c_.send(s_, f, size_); });
  refused("receives from rank", [&] { c_.recv(s_, f, rank_); });
  refused("receives from rank", [&] { c_.recv(s_, f, -1); });
  write_values(d, 0);
  c_.all_reduce(s_, d, Reduce::sum).wait();  // and the group still works
  expect_values(d, [&](int64_t k) { return size_ * value(0, k); });
}

TEST_P(Conformance, OnlyAGroupOfOneCopies) {
  const int64_t n = 17;
  const Owned in = owned(DType::f32, n), gathered = owned(DType::f32, n * size_), part = owned(DType::f32, n),
              exchanged = owned(DType::f32, n * size_);
  write_values(in, rank_);
  write_values(gathered, rank_);
  c_.all_gather(s_, gathered, gathered->flat(rank_ * n, (rank_ + 1) * n)).wait();
  c_.all_reduce(s_, in, Reduce::max).wait();
  EXPECT_EQ(c_.copied(), 0);
  c_.all_gather(s_, gathered, in).wait();
  c_.reduce_scatter(s_, part, gathered).wait();
  c_.all_to_all(s_, exchanged, gathered).wait();
  EXPECT_EQ(c_.copied(), GetParam().name.starts_with("self") ? 3 * 4 * n : 0);
}

}  // namespace
}  // namespace megalith
