// The matcher speaks of two ranks here, word by word. Real traces with planted faults are in matcher_faults_test.cpp.
#include "trainer/planner/matcher.h"

#include "tests/message_of.h"

namespace megalith {
namespace {

using Kind = TraceEvent::Kind;

// Two ranks that share the channels shard and world.
class TwoRanks : public testing::Test {
 protected:
  struct Call {
    Channel channel;
    Transfer transfer;
    int64_t bytes;
    int32_t peer = -1;
    bool wait = true;
  };
  static std::vector<std::string> match(const std::vector<Call>& first, const std::vector<Call>& second) {
    Traces traces;
    for (const auto& calls : {first, second}) {
      Trace trace;
      trace.keep(TraceLevel::transfers);
      std::vector<int64_t> open;
      for (const Call& c : calls) {
        const int64_t ticket = trace.begin(static_cast<int>(c.channel), c.transfer, c.peer, c.bytes);
        if (c.wait)
          trace.wait(ticket);
        else
          open.push_back(ticket);
      }
      for (int64_t ticket : open) trace.wait(ticket);
      traces.push_back(trace.events());
    }
    return megalith::match({.shard = 2}, traces);
  }
  const Call gather{Channel::shard, Transfer::all_gather, 64}, sum{Channel::world, Transfer::all_reduce, 24};
};

TEST_F(TwoRanks, CirclesAcrossChannelsAreFound) {
  EXPECT_TRUE(match({gather, sum}, {gather, sum}).empty());
  const std::vector<std::string> faults = match({gather, sum}, {sum, gather});
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_EQ(faults[0], "ranks wait for one another: rank 0 (shard 0) for rank 1 (shard 1), that for rank 0 (shard 0)");
  EXPECT_EQ(faults[1],
            "shard, group of rank 0: all_gather of 64 bytes that rank 0 (shard 0) began at event 0 blocks "
            "event 1, but rank 1 (shard 1) has not begun it at event 1");
  Call early = sum;
  early.wait = false;
  EXPECT_TRUE(match({gather, sum}, {early, gather}).empty()) << "beginning blocks nobody";
}

TEST_F(TwoRanks, SendsAreNotBuffered) {
  const auto message = [](Transfer transfer, int32_t peer, bool wait) {
    return Call{Channel::shard, transfer, 8, peer, wait};
  };
  using enum Transfer;
  EXPECT_FALSE(match({message(send, 1, true), message(recv, 1, true)},  //
                     {message(send, 0, true), message(recv, 0, true)})
                   .empty());
  EXPECT_TRUE(match({message(send, 1, false), message(recv, 1, true)},  //
                    {message(send, 0, false), message(recv, 0, true)})
                  .empty());
  EXPECT_TRUE(match({message(send, 1, true), message(recv, 1, true)},  //
                    {message(recv, 0, true), message(send, 0, true)})
                  .empty());
}

TEST_F(TwoRanks, FaultsSayWhoAndWhere) {
  Traces left(2);
  left[0] = {{.kind = Kind::begin,
              .transfer = Transfer::send,
              .channel = static_cast<int8_t>(Channel::shard),
              .peer = 1,
              .id = 0,
              .bytes = 40}};
  EXPECT_EQ(megalith::match({.shard = 2}, left),
            std::vector<std::string>{"shard, group of rank 0: send of 40 bytes to member 1 that rank 0 (shard 0) began "
                                     "at event 0 is never complete: rank 1 (shard 1) reached its end without it"});
  EXPECT_EQ(match({gather, sum}, {gather}),
            std::vector<std::string>{"world, group of rank 0: all_reduce of 24 bytes that rank 0 (shard 0) began at "
                                     "event 2 blocks event 3, but rank 1 (shard 1) reached its end without "
                                     "it"});
  Call larger = gather;
  larger.bytes = 72;
  EXPECT_EQ(match({gather}, {larger}),
            std::vector<std::string>{"shard, group of rank 0: all_gather of 72 bytes that rank 1 (shard 1) began at "
                                     "event 0 and shard, group of rank 0: all_gather of 64 bytes that rank 0 (shard 0) "
                                     "began at event 0 disagree in collective 0"});
  left[0] = {{.kind = Kind::wait, .id = 3}};
  EXPECT_EQ(megalith::match({.shard = 2}, left),
            std::vector<std::string>{"rank 0 (shard 0) waits at event 0 for a transfer that it has not begun"});
  EXPECT_NE(message_of([] { megalith::match({.shard = 2}, Traces(3)); }).find("3 traces for a mesh of 2"),
            std::string::npos);
}

}  // namespace
}  // namespace megalith
