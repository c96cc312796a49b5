// The conformance suite, second part: transfers while they are under way. Their order, when they are waited for, what
// an error does to them, and what a trace keeps of them.
#include "tests/message_of.h"
#include "tests/mpi/conformance.h"
#include "tests/pure/ops_under.h"

namespace megalith {
namespace {

TEST_P(Conformance, SeveralOutstandingWaitedInAnyOrder) {
  constexpr int64_t n = 4001;
  const Owned in = owned(DType::f32, n), gathered = owned(DType::f32, n * size_), whole = owned(DType::f32, n * size_),
              part = owned(DType::f32, n), sum = owned(DType::f32, n), root = owned(DType::i32, 5),
              exchanged = owned(DType::f32, n * size_);
  write_values(in, rank_);
  write_values(whole, rank_);
  write_values(sum, rank_);
  if (rank_ == 0) write_values(root, 0);
  Pending a = c_.all_gather(s_, gathered, in), b = c_.reduce_scatter(s_, part, whole),
          d = c_.all_reduce(s_, sum, Reduce::sum), e = c_.broadcast(s_, root, 0),
          f = c_.all_to_all(s_, exchanged, whole);
  e.wait();
  b.wait();
  d.wait();
  f.wait();
  a.wait();
  const auto sum_of = [&](int64_t i) {
    double all = 0;
    for (int r = 0; r < size_; r++) all += value(r, i);
    return all;
  };
  expect_values(gathered, [&](int64_t i) { return value(static_cast<int>(i / n), i % n); });
  expect_values(part, [&](int64_t i) { return sum_of(rank_ * n + i); });
  expect_values(exchanged, [&](int64_t i) { return value(static_cast<int>(i / n), rank_ * n + i % n); });
  expect_values(sum, sum_of);
  expect_values(root, [](int64_t i) { return value(0, i); });
}

// Each passes on what it has received, so that nothing but the order of two calls keeps the ranks apart: one that is
// too early or has the wrong peer hangs or carries something else.
TEST_P(Conformance, ATokenGoesRoundTheRing) {
  if (size_ == 1) return;
  const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
  for (int64_t n : transfer_sizes) {
    const Owned token = owned(DType::f32, n);
    write_values(token, rank_);
    for (int round = 0; round < 3; round++) {
      if (rank_ > 0 || round > 0) c_.recv(s_, token, previous).wait();
      expect_values(token, [](int64_t i) { return value(0, i); });
      c_.send(s_, token, next).wait();
    }
    if (rank_ == 0) c_.recv(s_, token, previous).wait();
    expect_values(token, [](int64_t i) { return value(0, i); });
  }
}

// What a transfer reads was launched before it, what reads its result comes after the wait; all on the host's side
// without waiting.
TEST_P(Conformance, TransfersAreInOrderWithTheStream) {
  const int64_t n = 4001;
  const Owned data = owned(DType::f32, n), before = owned(DType::f32, n), after = owned(DType::f32, n);
  for (int round = 1; round <= 4; round++) {
    write(data, [&](int64_t i) { return small_value(rank_, i) * round; });
    launch(s_, Copy{.y = before, .x = data});
    Pending sum = c_.all_reduce(s_, data, Reduce::sum);
    sum.wait();
    launch(s_, Copy{.y = after, .x = data});
  }
  expect_values(before, [&](int64_t i) { return 4 * small_value(rank_, i); });
  expect_values(after, [&](int64_t i) {
    double all = 0;
    for (int r = 0; r < size_; r++) all += 4 * small_value(r, i);
    return all;
  });
}

// A gather of what another one gathers, in groups of opposite orders, and work of the stream between their beginning
// and their end.
TEST_P(Conformance, AGatherBehindAnother) {
  const Group reversed = c_.split("reversed", num(Channel::in_node), 0, -rank_);
  for (int64_t n : {1, 4001}) {
    const Owned in = owned(DType::bf16, n), some = owned(DType::bf16, n * size_),
                all = owned(DType::bf16, n * size_ * size_), copied = owned(DType::bf16, n);
    const auto every_rank = [&](int round) {
      return [=, this](int64_t i) { return value(static_cast<int>(i / n % size_), round + i % n); };
    };
    for (int round = 0; round < 4; round++) {
      write_values(in, rank_, round);
      {
        Pending both = reversed->all_gather(s_, all, some, c_.all_gather(s_, some, in));
        launch(s_, Copy{.y = copied, .x = in});
        if (round % 2 == 0) both.wait();
      }
      expect_values(all, every_rank(round));
      expect_values(copied, [&](int64_t i) { return value(rank_, round + i); });
    }
  }
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

// An op that computes nothing.
struct Work {
  static constexpr const char* name = "work";
};
void run(cpu::Queue&, const Work&) {}
[[maybe_unused]] void run(cuda::Queue, const Work&) {}

TEST_P(Conformance, TheTraceHoldsEveryTransferAndWhenItWasWaitedFor) {
  using Event = TraceEvent::Kind;
  const Owned in = owned(DType::bf16, 3), out = owned(DType::bf16, 3 * size_), whole = owned(DType::f32, 5 * size_),
              part = owned(DType::f32, 5), sum = owned(DType::f64, 2), exchanged = owned(DType::f32, 5 * size_);
  for (const Owned* t : {&in, &whole, &sum}) write_values(*t, 0);
  Pending before = c_.all_gather(s_, out, in);
  EXPECT_TRUE(s_.trace().events().empty()) << "nothing is kept unless asked for";

  s_.trace().keep(TraceLevel::everything);
  before.wait();  // its beginning is not in the trace, so its end is not
  const auto work = [&] { s_.launch(Work{}, {}, {}); };
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
  c_.all_to_all(s_, exchanged, whole).wait();
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
                                            begin(Transfer::all_to_all, 4, 20 * size_),
                                            wait(4),
                                            begin(Transfer::barrier, 5, 0),
                                            wait(5)};
  std::vector<TraceEvent> found = s_.trace().events();
  if (size_ == 1) {
    for (const TraceEvent& e : found) EXPECT_EQ(e.kind, Event::op) << "a group of one has no transfers";
  } else {
    EXPECT_EQ(ops_under(found, 0), 1);
    EXPECT_EQ(ops_under(found, 1), 2);
    EXPECT_EQ(ops_under(found, 2), 0);
    EXPECT_NE(message_of([&] { ops_under(found, 6); }).find("no transfer 6"), std::string::npos);
    EXPECT_EQ(transfers_on(found, c_.channel()).size(), 6u);
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

}  // namespace
}  // namespace megalith
