// The conformance suite of communicators: what communicator.h promises, for every kind of group, and where there is a
// GPU, real or simulated, for those of its tensors as well. Sizes are odd, some beyond what a message carries eagerly,
// and values are such that a wrong order or a wrong part shows.
#include "trainer/runtime/communicator.h"

#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include "kernels/device_queue.h"
#include "kernels/elementwise.h"
#include "tests/mpi/groups.h"
#include "tests/pure/testing.h"

namespace megalith {
namespace {

TEST(Kinds, OnGpusAsWell) {
  if (device::count() == 0)
    GTEST_SKIP() << "no GPU here (or a build without CUDA): NCCL and what is staged through the host are not tested";
}

// A tensor with memory of its own, which lets overruns show.
class Owned {
 public:
  Owned(World world, DType dtype, int64_t n)
      : host_(static_cast<size_t>(world == World::cpu ? n * size_of(dtype) : 0), '\x5a'),
        device_(world == World::cuda ? device::allocate(n * size_of(dtype), "a tensor of the test") : nullptr),
        tensor_(world == World::cuda ? device_.get() : host_.data(), dtype, {n}) {}
  operator Tensor() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }

 private:
  std::vector<char> host_;
  device::Memory device_;
  Tensor tensor_;
};

void set(const Tensor& t, int64_t i, double value) {
  switch (t.dtype()) {
    case DType::f32: t.data<float>()[i] = static_cast<float>(value); return;
    case DType::f64: t.data<double>()[i] = value; return;
    case DType::bf16: t.data<bfloat16>()[i] = bfloat16(static_cast<float>(value)); return;
    default: t.data<int32_t>()[i] = static_cast<int32_t>(value);
  }
}
double get(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::f32: return static_cast<double>(t.data<float>()[i]);
    case DType::f64: return t.data<double>()[i];
    case DType::bf16: return static_cast<double>(static_cast<float>(t.data<bfloat16>()[i]));
    default: return t.data<int32_t>()[i];
  }
}
// Element i of rank r: small whole numbers, exact in every type.
double value(int rank, int64_t i) { return static_cast<double>((i * 7 + rank * 31) % 127 - 63); }
// Small enough that sums over the ranks are exact in bf16 as well: its whole numbers end at 256.
double small_value(int rank, int64_t i) { return static_cast<double>((i * 7 + rank * 31) % 31 - 15); }

constexpr int64_t sizes[] = {1, 3, 17, 1023, 20011};
constexpr DType all_types[] = {DType::f32, DType::bf16, DType::f64, DType::i32};

class Conformance : public testing::TestWithParam<Kind> {
 protected:
  Owned owned(DType dtype, int64_t n) const { return {world_, dtype, n}; }

  // In the order of the stream, wherever the tensor lies.
  void write(const Tensor& t, const std::function<double(int64_t)>& element) {
    s_.upload("write", {t}, [&](std::span<const Tensor> host) {
      for (int64_t i = 0; i < t.numel(); i++) set(host[0], i, element(i));
    });
  }
  void write_values(const Tensor& t, int rank, int64_t first = 0) {
    write(t, [=](int64_t i) { return value(rank, first + i); });
  }
  std::vector<double> read(const Tensor& t) {
    std::vector<double> values(static_cast<size_t>(t.numel()));
    s_.download("read", t, [&](Tensor host) {
      for (size_t i = 0; i < values.size(); i++) values[i] = get(host, static_cast<int64_t>(i));
    });
    s_.synchronize();
    return values;
  }
  std::vector<char> bytes_of(const Tensor& t) {
    std::vector<char> bytes(static_cast<size_t>(t.bytes()));
    s_.download("read", t, [&](Tensor host) { std::memcpy(bytes.data(), host.raw(), bytes.size()); });
    s_.synchronize();
    return bytes;
  }
  void expect_values(const Tensor& t, const std::function<double(int64_t)>& element) {
    const std::vector<double> found = read(t);
    for (size_t i = 0; i < found.size(); i++)
      ASSERT_EQ(found[i], element(static_cast<int64_t>(i))) << name_of(t.dtype()) << " " << t.numel() << " at " << i;
  }

  const World world_ = GetParam().world;
  const std::unique_ptr<DeviceQueue> queue_{world_ == World::cuda ? new DeviceQueue : nullptr};
  Stream s_{world_, queue_ ? queue_->queue() : cuda::Queue{}};
  Group group_ = GetParam().make();
  Communicator& c_ = *group_;
  const int rank_ = group_->rank(), size_ = group_->size();
};
INSTANTIATE_TEST_SUITE_P(Of, Conformance, testing::ValuesIn(kinds()), [](const auto& p) { return p.param.name; });

TEST_P(Conformance, AllGatherPutsPartsInOrder) {
  for (DType dtype : all_types)
    for (int64_t n : sizes)
      for (bool in_place : {false, true}) {
        const Owned out = owned(dtype, n * size_), separate = owned(dtype, n);
        const Tensor in = in_place ? out->flat(rank_ * n, (rank_ + 1) * n) : Tensor(separate);
        write_values(in, rank_);
        c_.all_gather(s_, out, in).wait();
        expect_values(out, [&](int64_t i) { return value(static_cast<int>(i / n), i % n); });
      }
}

TEST_P(Conformance, ReduceScatterGivesEachItsPartOfTheSum) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t n : sizes) {
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

TEST_P(Conformance, AllReduceSumsAndFindsTheMaximum) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (int64_t n : sizes)
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

// 8 bits of significand: each partial sum is off by at most 2^-8 of itself, and of nothing but itself. A sum that was
// cut off instead of rounded would drift to one side by half of that.
TEST_P(Conformance, SumsInBf16RoundToNearest) {
  const int64_t n = 70001;
  std::vector<double> exact(static_cast<size_t>(n)), mine(static_cast<size_t>(n));
  for (int r = 0; r < size_; r++) {
    std::mt19937 random(static_cast<unsigned>(r));
    std::uniform_real_distribution<float> uniform(1, 2);
    for (size_t i = 0; i < exact.size(); i++) {
      const auto x = static_cast<double>(static_cast<float>(bfloat16(uniform(random))));
      exact[i] += x;
      if (r == rank_) mine[i] = x;
    }
  }
  const Owned whole = owned(DType::bf16, n * size_), part = owned(DType::bf16, n), data = owned(DType::bf16, n);
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
      ASSERT_LE(std::abs(off), (size_ - 1) * std::ldexp(1, -8)) << i;
      drift += off / static_cast<double>(n);
    }
    EXPECT_LE(std::abs(drift), (size_ - 1) * std::ldexp(1, -12));
  }
}

// Sums round, and must round to the same bits on every rank, and the next time.
TEST_P(Conformance, AllReduceGivesEveryRankTheSameBitsEveryTime) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t n : sizes) {
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
    for (int64_t n : sizes) {
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

TEST_P(Conformance, BroadcastFromEveryRoot) {
  for (DType dtype : all_types)
    for (int64_t n : sizes)
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
    for (int64_t n : sizes) {
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
  for (int64_t n : sizes) {
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

TEST_P(Conformance, SeveralOutstandingWaitedInAnyOrder) {
  constexpr int64_t n = 4001;
  const Owned in = owned(DType::f32, n), gathered = owned(DType::f32, n * size_), whole = owned(DType::f32, n * size_),
              part = owned(DType::f32, n), sum = owned(DType::f32, n), root = owned(DType::i32, 5);
  write_values(in, rank_);
  write_values(whole, rank_);
  write_values(sum, rank_);
  if (rank_ == 0) write_values(root, 0);
  Pending a = c_.all_gather(s_, gathered, in), b = c_.reduce_scatter(s_, part, whole),
          d = c_.all_reduce(s_, sum, Reduce::sum), e = c_.broadcast(s_, root, 0);
  e.wait();
  b.wait();
  d.wait();
  a.wait();
  const auto sum_of = [&](int64_t i) {
    double all = 0;
    for (int r = 0; r < size_; r++) all += value(r, i);
    return all;
  };
  expect_values(gathered, [&](int64_t i) { return value(static_cast<int>(i / n), i % n); });
  expect_values(part, [&](int64_t i) { return sum_of(rank_ * n + i); });
  expect_values(sum, sum_of);
  expect_values(root, [](int64_t i) { return value(0, i); });
}

// What a transfer reads was launched before it, what reads its result comes after the wait; all on the host's side
// without waiting.
TEST_P(Conformance, TransfersAreInOrderWithTheStream) {
  const int64_t n = 4001;
  const Owned data = owned(DType::f32, n), before = owned(DType::f32, n), after = owned(DType::f32, n);
  for (int round = 1; round <= 4; round++) {
    write(data, [&](int64_t i) { return small_value(rank_, i) * round; });
    copy(s_, before, data);
    Pending sum = c_.all_reduce(s_, data, Reduce::sum);
    sum.wait();
    copy(s_, after, data);
  }
  expect_values(before, [&](int64_t i) { return 4 * small_value(rank_, i); });
  expect_values(after, [&](int64_t i) {
    double all = 0;
    for (int r = 0; r < size_; r++) all += 4 * small_value(r, i);
    return all;
  });
}

TEST_P(Conformance, APendingWaitsOnceHoweverItEnds) {
  const Owned a = owned(DType::f32, 9), b = owned(DType::f32, 9), d = owned(DType::f32, 9);
  for (const Owned* t : {&a, &b, &d}) write_values(*t, rank_);
  Pending waited_twice = c_.all_reduce(s_, a, Reduce::max);
  waited_twice.wait();
  waited_twice.wait();
  { const Pending forgotten = c_.all_reduce(s_, b, Reduce::max); }
  Pending moved;
  moved = c_.all_reduce(s_, d, Reduce::max);
  Pending again = std::move(moved);
  moved.wait();
  again.wait();
  const std::vector<double> expected = read(a);
  EXPECT_EQ(read(b), expected);
  EXPECT_EQ(read(d), expected);
}

// A rank that fails must not wait for a message that comes only when it has not failed.
TEST_P(Conformance, AnErrorWaitsForNothing) {
  if (size_ == 1 || world_ != World::cpu) return;
  const Owned in = owned(DType::f32, 20011), out = owned(DType::f32, 20011);
  write_values(out, rank_);
  const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
  EXPECT_EQ(message_of([&] {
              const Pending expected = c_.recv(s_, in, previous);
              FAIL("the disk is full");
            }),
            "the disk is full");
  c_.barrier(s_);
  c_.send(s_, out, next).wait();  // what was given up arrives all the same
  c_.barrier(s_);
}

TEST_P(Conformance, BarrierHoldsNobodyForEver) {
  for (int i = 0; i < 5; i++) c_.barrier(s_);
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
  refused("f32 and bf16 of equal parts", [&] { c_.reduce_scatter(s_, d, d_whole); });
  refused("reduce_scatter", [&] { c_.reduce_scatter(s_, b1, f); });
  refused("all_reduce of i32; f32, f64 and bf16 are supported", [&] { c_.all_reduce(s_, i, Reduce::sum); });
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

TEST_P(Conformance, TheTraceHoldsEveryTransferAndWhenItWasWaitedFor) {
  using Event = TraceEvent::Kind;
  const Owned in = owned(DType::bf16, 3), out = owned(DType::bf16, 3 * size_), whole = owned(DType::f32, 5 * size_),
              part = owned(DType::f32, 5), sum = owned(DType::f64, 2);
  for (const Owned* t : {&in, &whole, &sum}) write_values(*t, 0);
  Pending before = c_.all_gather(s_, out, in);
  EXPECT_TRUE(s_.trace().events().empty()) << "nothing is kept unless asked for";

  s_.trace().keep(TraceLevel::everything);
  before.wait();  // its beginning is not in the trace, so its end is not
  const auto work = [&] {
    s_.launch(
        "work", {}, [] {}, [](auto) {});
  };
  work();
  {
    Pending gather = c_.all_gather(s_, out, in), scatter = c_.reduce_scatter(s_, part, whole);
    work();
    gather.wait();
    gather.wait();
    Pending moved = std::move(scatter);
    scatter.wait();
    work();
  }
  c_.all_reduce(s_, sum, Reduce::sum).wait();
  c_.broadcast(s_, sum, size_ - 1).wait();
  c_.barrier(s_);

  const auto channel = static_cast<int8_t>(c_.channel());
  const auto begin = [&](Transfer transfer, int32_t id, int64_t bytes, int32_t peer = -1) {
    return TraceEvent{
        .kind = Event::begin, .transfer = transfer, .channel = channel, .peer = peer, .id = id, .bytes = bytes};
  };
  const auto wait = [](int32_t id) { return TraceEvent{.kind = Event::wait, .id = id}; };
  const TraceEvent op{.kind = Event::op};
  const std::vector<TraceEvent> expected = {op,
                                            begin(Transfer::all_gather, 0, 6 * size_),
                                            begin(Transfer::reduce_scatter, 1, 20 * size_),
                                            op,
                                            wait(0),
                                            op,
                                            wait(1),
                                            begin(Transfer::all_reduce, 2, 16),
                                            wait(2),
                                            begin(Transfer::broadcast, 3, 16, size_ - 1),
                                            wait(3),
                                            begin(Transfer::barrier, 4, 0),
                                            wait(4)};
  std::vector<TraceEvent> found = s_.trace().events();
  if (size_ == 1) {
    for (const TraceEvent& e : found) EXPECT_EQ(e.kind, Event::op) << "a group of one has no transfers";
  } else {
    EXPECT_EQ(ops_under(found, 0), 1);
    EXPECT_EQ(ops_under(found, 1), 2);
    EXPECT_EQ(ops_under(found, 2), 0);
    EXPECT_NE(message_of([&] { ops_under(found, 5); }).find("no transfer 5"), std::string::npos);
    EXPECT_EQ(transfers_on(found, c_.channel()).size(), 5u);
    EXPECT_TRUE(transfers_on(found, c_.channel() + 1).empty());
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); i++) {
      found[i].op = nullptr;
      EXPECT_TRUE(found[i] == expected[i]) << i;
    }
    s_.trace().keep(TraceLevel::transfers);
    work();
    c_.barrier(s_);
    ASSERT_EQ(s_.trace().events().size(), 2u);
    EXPECT_EQ(s_.trace().events()[0].id, 0) << "each trace counts from 0";
    EXPECT_EQ(s_.trace().events()[1].id, 0);
  }
  s_.trace().keep(TraceLevel::off);
  c_.barrier(s_);
  EXPECT_TRUE(s_.trace().events().empty());
}

TEST_P(Conformance, TwoChannelsShareATrace) {
  const Group part = c_.split("part", num(Channel::between_nodes), 0, rank_);
  const Owned a = owned(DType::f32, 1), b = owned(DType::f32, 2);
  for (const Owned* t : {&a, &b}) write_values(*t, 0);
  s_.trace().keep(TraceLevel::transfers);
  { const Pending first = c_.all_reduce(s_, a, Reduce::max), second = part->all_reduce(s_, b, Reduce::max); }
  const std::vector<TraceEvent>& found = s_.trace().events();
  if (size_ == 1) {
    EXPECT_TRUE(found.empty());
    return;
  }
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].channel, c_.channel());
  EXPECT_EQ(found[1].channel, num(Channel::between_nodes));
  EXPECT_EQ(found[1].bytes, 8);
  EXPECT_EQ(found[2].id, 1) << "the last one made ends first";
  EXPECT_EQ(found[3].id, 0);
}

TEST_P(Conformance, OnlyAGroupOfOneCopies) {
  const int64_t n = 17;
  const Owned in = owned(DType::f32, n), gathered = owned(DType::f32, n * size_), part = owned(DType::f32, n);
  write_values(in, rank_);
  write_values(gathered, rank_);
  c_.all_gather(s_, gathered, gathered->flat(rank_ * n, (rank_ + 1) * n)).wait();
  c_.all_reduce(s_, in, Reduce::max).wait();
  EXPECT_EQ(c_.copied(), 0);
  c_.all_gather(s_, gathered, in).wait();
  c_.reduce_scatter(s_, part, gathered).wait();
  EXPECT_EQ(c_.copied(), GetParam().name.starts_with("self") ? 2 * 4 * n : 0);
}

TEST(RingBytes, AreWhatARankSends) {
  EXPECT_EQ(ring_bytes(Transfer::all_gather, 800, 8), 700);
  EXPECT_EQ(ring_bytes(Transfer::reduce_scatter, 800, 8), 700);
  EXPECT_EQ(ring_bytes(Transfer::all_reduce, 800, 8), 1400);
  EXPECT_EQ(ring_bytes(Transfer::broadcast, 800, 8), 800);
  EXPECT_EQ(ring_bytes(Transfer::send, 800, 8), 800);
  EXPECT_EQ(ring_bytes(Transfer::recv, 800, 8), 0);
  EXPECT_EQ(ring_bytes(Transfer::barrier, 0, 8), 0);
  for (Transfer t : {Transfer::all_gather, Transfer::reduce_scatter, Transfer::all_reduce, Transfer::broadcast})
    EXPECT_EQ(ring_bytes(t, 800, 1), 0) << name_of(t);
}

}  // namespace
}  // namespace megalith
