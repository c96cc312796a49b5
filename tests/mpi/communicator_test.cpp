// The conformance suite of communicators: what communicator.h promises, for every kind of group. Sizes are odd, some
// beyond what a message carries eagerly, and values are such that a wrong order or a wrong part shows.
#include "trainer/runtime/communicator.h"

#include <cmath>
#include <cstring>
#include <random>

#include "tests/mpi/session.h"

namespace megalith {
namespace {

using Group = std::unique_ptr<Communicator>;
struct Kind {
  std::string name;
  std::function<Group()> make;
};

// The halves of the world, the lower ranks and the upper, of different sizes where the world is odd.
Group half() {
  const int rank = session().rank();
  return session().world()->split("half", 3, 2 * rank < session().size() ? 0 : 1, rank);
}

std::vector<Kind> kinds() {
  return {
      {"self", [] { return self_communicator("self"); }},
      {"mpi_world", [] { return session().world(); }},
      {"mpi_reversed", [] { return session().world()->split("reversed", 4, 0, -session().rank()); }},
      {"mpi_half", half},
      {"mpi_alone", [] { return session().world()->split("alone", 5, session().rank(), 0); }},
  };
}

// A tensor with memory of its own.
class Owned {
 public:
  Owned(DType dtype, int64_t n)
      : bytes_(static_cast<size_t>(n * size_of(dtype)), '\x5a'), tensor_(bytes_.data(), dtype, {n}) {}
  operator Tensor() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  std::vector<char> bytes_;
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
void fill_with(const Tensor& t, int rank, int64_t first = 0) {
  for (int64_t i = 0; i < t.numel(); i++) set(t, i, value(rank, first + i));
}

// Small enough that sums over the ranks are exact in bf16 as well: its whole numbers end at 256.
double small_value(int rank, int64_t i) { return static_cast<double>((i * 7 + rank * 31) % 31 - 15); }

constexpr int64_t sizes[] = {1, 3, 17, 1023, 70001};
constexpr DType all_types[] = {DType::f32, DType::bf16, DType::f64, DType::i32};

class Conformance : public testing::TestWithParam<Kind> {
 protected:
  Group group_ = GetParam().make();
  Communicator& c_ = *group_;
  const int rank_ = group_->rank(), size_ = group_->size();
  Stream s_{World::cpu};
};
INSTANTIATE_TEST_SUITE_P(Of, Conformance, testing::ValuesIn(kinds()), [](const auto& p) { return p.param.name; });

TEST_P(Conformance, AllGatherPutsPartsInOrder) {
  for (DType dtype : all_types)
    for (int64_t n : sizes)
      for (bool in_place : {false, true}) {
        const Owned out(dtype, n * size_), separate(dtype, n);
        const Tensor in = in_place ? out->flat(rank_ * n, (rank_ + 1) * n) : Tensor(separate);
        fill_with(in, rank_);
        c_.all_gather(s_, out, in).wait();
        for (int64_t i = 0; i < n * size_; i++)
          ASSERT_EQ(get(out, i), value(static_cast<int>(i / n), i % n)) << name_of(dtype) << " " << n << " at " << i;
      }
}

TEST_P(Conformance, ReduceScatterGivesEachItsPartOfTheSum) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t n : sizes) {
      const Owned in(dtype, n * size_), out(dtype, n);
      for (int64_t i = 0; i < n * size_; i++) set(in, i, small_value(rank_, i));
      c_.reduce_scatter(s_, out, in).wait();
      for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int r = 0; r < size_; r++) sum += small_value(r, rank_ * n + i);
        ASSERT_EQ(get(out, i), sum) << name_of(dtype) << " " << n << " at " << i;
      }
      for (int64_t i = 0; i < n * size_; i++) ASSERT_EQ(get(in, i), small_value(rank_, i)) << "the input stays";
    }
}

TEST_P(Conformance, AllReduceSumsAndFindsTheMaximum) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (int64_t n : sizes)
      for (Reduce op : {Reduce::sum, Reduce::max}) {
        const Owned data(dtype, n);
        for (int64_t i = 0; i < n; i++) set(data, i, small_value(rank_, i));
        c_.all_reduce(s_, data, op).wait();
        for (int64_t i = 0; i < n; i++) {
          double expected = small_value(0, i);
          for (int r = 1; r < size_; r++)
            expected = op == Reduce::sum ? expected + small_value(r, i) : std::max(expected, small_value(r, i));
          ASSERT_EQ(get(data, i), expected) << name_of(dtype) << " " << n << " at " << i;
        }
      }
}

// 8 bits of significand: each partial sum is off by at most 2^-8 of itself, and of nothing but itself. A sum that was
// cut off instead of rounded would drift to one side by half of that.
TEST_P(Conformance, SumsInBf16RoundToNearest) {
  const int64_t n = 70001;
  std::vector<double> exact(static_cast<size_t>(n));
  const Owned whole(DType::bf16, n * size_), part(DType::bf16, n), data(DType::bf16, n);
  for (int r = 0; r < size_; r++) {
    std::mt19937 random(static_cast<unsigned>(r));
    std::uniform_real_distribution<float> uniform(1, 2);
    for (int64_t i = 0; i < n; i++) {
      const bfloat16 x(uniform(random));
      exact[static_cast<size_t>(i)] += static_cast<double>(static_cast<float>(x));
      if (r != rank_) continue;
      data->data<bfloat16>()[i] = x;
      for (int to = 0; to < size_; to++) whole->data<bfloat16>()[to * n + i] = x;
    }
  }
  c_.all_reduce(s_, data, Reduce::sum).wait();
  c_.reduce_scatter(s_, part, whole).wait();
  for (const Owned* sum : {&data, &part}) {
    double drift = 0;
    for (int64_t i = 0; i < n; i++) {
      const double e = exact[static_cast<size_t>(i)], off = get(*sum, i) / e - 1;
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
        const Owned data(dtype, n), all(dtype, n * size_);
        for (int64_t i = 0; i < n; i++) set(data, i, static_cast<double>(normal(random)));
        c_.all_reduce(s_, data, Reduce::sum).wait();
        c_.all_gather(s_, all, data).wait();
        for (int r = 0; r < size_; r++) {
          const Tensor theirs = all->flat(r * n, (r + 1) * n);
          ASSERT_EQ(std::memcmp(theirs.raw(), data->raw(), static_cast<size_t>(data->bytes())), 0);
        }
        if (round == 0) first = data.bytes();
        ASSERT_EQ(data.bytes(), first);
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
        const Owned in(dtype, n * size_), out(dtype, n);
        for (int64_t i = 0; i < n * size_; i++) set(in, i, static_cast<double>(normal(random)));
        c_.reduce_scatter(s_, out, in).wait();
        if (round == 0) first = out.bytes();
        ASSERT_EQ(out.bytes(), first);
      }
    }
}

TEST_P(Conformance, BroadcastFromEveryRoot) {
  for (DType dtype : all_types)
    for (int64_t n : sizes)
      for (int root = 0; root < size_; root++) {
        const Owned data(dtype, n);
        if (rank_ == root) fill_with(data, root, 5);
        c_.broadcast(s_, data, root).wait();
        for (int64_t i = 0; i < n; i++) ASSERT_EQ(get(data, i), value(root, 5 + i)) << name_of(dtype) << " " << n;
      }
}

// Round the ring, in both directions at once; messages between two ranks arrive in the order they were sent.
TEST_P(Conformance, MessagesGoRoundTheRing) {
  if (size_ == 1) return;
  const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
  for (DType dtype : all_types)
    for (int64_t n : sizes) {
      const Owned first(dtype, n), second(dtype, n + 2), back(dtype, 1);
      const Owned got_first(dtype, n), got_second(dtype, n + 2), got_back(dtype, 1);
      fill_with(first, rank_);
      fill_with(second, rank_, 11);
      fill_with(back, rank_, 3);
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
      for (int64_t i = 0; i < n; i++) ASSERT_EQ(get(got_first, i), value(previous, i));
      for (int64_t i = 0; i < n + 2; i++) ASSERT_EQ(get(got_second, i), value(previous, 11 + i));
      ASSERT_EQ(get(got_back, 0), value(next, 3));
    }
}

TEST_P(Conformance, SeveralOutstandingWaitedInAnyOrder) {
  constexpr int64_t n = 4001;
  const Owned in(DType::f32, n), gathered(DType::f32, n * size_), whole(DType::f32, n * size_), part(DType::f32, n),
      sum(DType::f32, n), root(DType::i32, 5);
  fill_with(in, rank_);
  fill_with(whole, rank_);
  fill_with(sum, rank_);
  if (rank_ == 0) fill_with(root, 0);
  Pending a = c_.all_gather(s_, gathered, in), b = c_.reduce_scatter(s_, part, whole),
          d = c_.all_reduce(s_, sum, Reduce::sum), e = c_.broadcast(s_, root, 0);
  e.wait();
  b.wait();
  d.wait();
  a.wait();
  for (int64_t i = 0; i < n * size_; i++) ASSERT_EQ(get(gathered, i), value(static_cast<int>(i / n), i % n));
  for (int64_t i = 0; i < n; i++) {
    double of_part = 0, of_all = 0;
    for (int r = 0; r < size_; r++) {
      of_part += value(r, rank_ * n + i);
      of_all += value(r, i);
    }
    ASSERT_EQ(get(part, i), of_part);
    ASSERT_EQ(get(sum, i), of_all);
  }
  for (int64_t i = 0; i < 5; i++) ASSERT_EQ(get(root, i), value(0, i));
}

TEST_P(Conformance, APendingWaitsOnceHoweverItEnds) {
  const Owned a(DType::f32, 9), b(DType::f32, 9), d(DType::f32, 9);
  for (const Owned* t : {&a, &b, &d}) fill_with(*t, rank_);
  Pending waited_twice = c_.all_reduce(s_, a, Reduce::max);
  waited_twice.wait();
  waited_twice.wait();
  { const Pending forgotten = c_.all_reduce(s_, b, Reduce::max); }
  Pending moved;
  moved = c_.all_reduce(s_, d, Reduce::max);
  Pending again = std::move(moved);
  moved.wait();
  again.wait();
  for (int64_t i = 0; i < 9; i++) {
    ASSERT_EQ(get(a, i), get(b, i));
    ASSERT_EQ(get(a, i), get(d, i));
  }
}

TEST_P(Conformance, BarrierHoldsNobodyForEver) {
  for (int i = 0; i < 5; i++) c_.barrier(s_);
}

TEST_P(Conformance, SplitsIntoGroupsInTheOrderOfTheKey) {
  // Odd and even ranks, backwards.
  const Group part = c_.split("part", 6, rank_ % 2, -rank_);
  EXPECT_EQ(part->name(), "part");
  if (part->size() > 1) {
    EXPECT_EQ(part->channel(), 6);
  }
  const int members = (size_ + 1 - rank_ % 2) / 2;
  ASSERT_EQ(part->size(), members);
  EXPECT_EQ(part->rank(), members - 1 - rank_ / 2);
  const Owned in(DType::i32, 1), out(DType::i32, members);
  set(in, 0, rank_);
  part->all_gather(s_, out, in).wait();
  for (int m = 0; m < members; m++) EXPECT_EQ(get(out, m), 2 * (members - 1 - m) + rank_ % 2);
}

TEST_P(Conformance, WrongCallsAreRefusedBeforeAnythingIsSent) {
  const Owned f(DType::f32, size_ * 3), f1(DType::f32, 3), d(DType::f64, 3), d_whole(DType::f64, size_ * 3),
      b1(DType::bf16, 3), i(DType::i32, 3), odd(DType::f32, size_ * 3 + 1);
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
  fill_with(d, 0);
  c_.all_reduce(s_, d, Reduce::sum).wait();  // and the group still works
  for (int64_t k = 0; k < 3; k++) EXPECT_EQ(get(d, k), size_ * value(0, k));
}

TEST_P(Conformance, TheTraceHoldsEveryTransferAndWhenItWasWaitedFor) {
  using Event = TraceEvent::Kind;
  const Owned in(DType::bf16, 3), out(DType::bf16, 3 * size_), whole(DType::f32, 5 * size_), part(DType::f32, 5),
      sum(DType::f64, 2);
  fill_with(whole, 0);
  fill_with(sum, 0);
  Pending before = c_.all_gather(s_, out, in);
  EXPECT_TRUE(s_.trace().events().empty()) << "nothing is kept unless asked for";

  s_.trace().keep(TraceLevel::everything);
  before.wait();  // its beginning is not in the trace, so its end is not
  const auto work = [&] { s_.launch("work", {}, [] {}); };
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
  const Group part = c_.split("part", 6, 0, rank_);
  const Owned a(DType::f32, 1), b(DType::f32, 2);
  fill_with(a, 0);
  fill_with(b, 0);
  s_.trace().keep(TraceLevel::transfers);
  { const Pending first = c_.all_reduce(s_, a, Reduce::max), second = part->all_reduce(s_, b, Reduce::max); }
  const std::vector<TraceEvent>& found = s_.trace().events();
  if (size_ == 1) {
    EXPECT_TRUE(found.empty());
    return;
  }
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].channel, c_.channel());
  EXPECT_EQ(found[1].channel, 6);
  EXPECT_EQ(found[1].bytes, 8);
  EXPECT_EQ(found[2].id, 1) << "the last one made ends first";
  EXPECT_EQ(found[3].id, 0);
}

TEST_P(Conformance, OnlyAGroupOfOneCopies) {
  const int64_t n = 17;
  const Owned in(DType::f32, n), gathered(DType::f32, n * size_), part(DType::f32, n);
  fill_with(in, rank_);
  c_.all_gather(s_, gathered, gathered->flat(rank_ * n, (rank_ + 1) * n)).wait();
  c_.all_reduce(s_, in, Reduce::max).wait();
  EXPECT_EQ(c_.copied(), 0);
  c_.all_gather(s_, gathered, in).wait();
  c_.reduce_scatter(s_, part, gathered).wait();
  EXPECT_EQ(c_.copied(), GetParam().name == "self" ? 2 * 4 * n : 0);
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
