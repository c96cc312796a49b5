// Where the time of a step goes: the accounts add up whatever happens, each moment goes to the right one, and a trace
// of it is one that Perfetto opens.
#include "trainer/step/account.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <set>

#include "configs/step_range.h"
#include "kernels/system/json.h"
#include "tests/data/scratch.h"
#include "tests/pure/small_run.h"
#include "tests/trace_faults.h"
#include "trainer/step/step_clock.h"

namespace megalith {
namespace {

TEST(Account, EachHasAName) {
  std::set<std::string> names;
  for (size_t a = 0; a < num_accounts; a++) names.insert(name_of(static_cast<Account>(a)));
  EXPECT_EQ(names.size(), num_accounts);
}

TEST(Laps, AddUpWhateverIsEnteredAndLeft) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; round++) {
    double now = 5;
    Laps laps(now, Account::elsewhere);
    Accounts expected{};
    std::vector<Account> open{Account::elsewhere};
    for (int i = 0; i < 300; i++) {
      const double dt = static_cast<double>(random() % 1000) / 1024;
      at(expected, open.back()) += dt;
      now += dt;
      if (open.size() > 1 && random() % 2) {
        laps.leave(now);
        open.pop_back();
      } else {
        open.push_back(static_cast<Account>(random() % num_accounts));
        laps.enter(now, open.back());
      }
    }
    EXPECT_EQ(total(laps.until(now)), now - 5);
    EXPECT_EQ(laps.take(now), expected);
    EXPECT_EQ(total(laps.take(now + 1)), 1);
  }
}

Accounts accounts(std::initializer_list<std::pair<Account, double>> of) {
  Accounts a{};
  for (const auto& [account, seconds] : of) at(a, account) = seconds;
  return a;
}

TEST(AccountsOfRanks, WhoBeganTheSumEarlierWaitedLonger) {
  const std::vector<Accounts> so_far = {accounts({{Account::gemm, 6}, {Account::gathers, 2}}),
                                        accounts({{Account::gemm, 8.5}, {Account::gathers, 0.5}}),
                                        accounts({{Account::gemm, 5}, {Account::input, 1}})};
  const Accounts mine = accounts({{Account::gemm, 6},
                                  {Account::gathers, 2},
                                  {Account::bubble, 1.5},
                                  {Account::optimizer, 1},
                                  {Account::messages, 0.5}});
  const std::vector<Accounts> ranks = accounts_of_ranks(so_far, 0, mine);
  EXPECT_EQ(ranks[0], mine);
  EXPECT_DOUBLE_EQ(at(ranks[1], Account::bubble), 0.5);
  EXPECT_DOUBLE_EQ(at(ranks[2], Account::bubble), 3.5);
  for (const Accounts& rank : ranks) {
    EXPECT_DOUBLE_EQ(total(rank), 11);
    EXPECT_DOUBLE_EQ(at(rank, Account::optimizer), 1);
  }
  EXPECT_DOUBLE_EQ(total(mean(ranks)), 11);
  EXPECT_DOUBLE_EQ(at(mean(ranks), Account::gemm), 6.5);
  EXPECT_EQ(slowest(ranks), 1u);
}

TEST(AccountsOfRanks, AClockThatSaysMoreIsShortened) {
  const std::vector<Accounts> so_far = {accounts({{Account::gemm, 8}}), accounts({{Account::gemm, 9.5}})};
  const Accounts mine = accounts({{Account::gemm, 8}, {Account::bubble, 1}, {Account::optimizer, 1}});
  const std::vector<Accounts> ranks = accounts_of_ranks(so_far, 0, mine);
  EXPECT_EQ(at(ranks[1], Account::bubble), 0);
  EXPECT_DOUBLE_EQ(total(ranks[1]), 10);
  EXPECT_EQ(slowest(ranks), 1u);
}

// A clock that a test moves.
struct Hand {
  double now = 100;
  Stream stream{World::cpu};
  StepClock clock{stream, [this] { return now; }};
  void op(double seconds, Cost::Kind kind = Cost::Kind::gemm) {
    clock.begin_op("op", {.kind = kind});
    now += seconds;
    clock.end();
  }
};

TEST(StepClock, TimeGoesToWhatIsInnermost) {
  Hand hand;
  hand.clock.keep_spans(true);
  hand.clock.begin_transfer(7, static_cast<int>(Channel::shard), Transfer::all_gather);
  hand.now += 0.5;  // the call
  hand.clock.end();
  hand.op(2);
  hand.now += 0.25;  // between ops
  hand.clock.begin_wait(7);
  hand.now += 1;
  hand.op(4, Cost::Kind::elementwise);  // what a wait does by itself
  hand.clock.end();
  hand.clock.begin_transfer(8, static_cast<int>(Channel::forward), Transfer::recv);
  hand.now += 0.125;
  hand.clock.end();
  hand.clock.begin_wait(8);
  hand.now += 16;
  hand.clock.end();
  hand.op(32, Cost::Kind::input);
  EXPECT_EQ(total(hand.clock.so_far()), hand.now - 100);
  hand.clock.end_step(3);
  hand.op(64, Cost::Kind::update);
  hand.clock.end_step(4);
  EXPECT_EQ(hand.clock.take(), accounts({{Account::gathers, 1.5},
                                         {Account::gemm, 2},
                                         {Account::elsewhere, 0.25},
                                         {Account::elementwise, 4},
                                         {Account::messages, 0.125},
                                         {Account::bubble, 16},
                                         {Account::input, 32}}));
  EXPECT_EQ(hand.clock.take(), accounts({{Account::optimizer, 64}}));
  EXPECT_THROW(hand.clock.take(), Error);
  EXPECT_THROW(hand.clock.end(), Error);

  std::map<std::string, const Span*> by_name;
  const std::vector<Span> spans = hand.clock.take_spans();
  for (const Span& span : spans) by_name[span.name] = &span;
  ASSERT_TRUE(by_name.contains("all_gather") && by_name.contains("recv") && by_name.contains("wait: gathers") &&
              by_name.contains("wait: bubble"));
  EXPECT_EQ(by_name["all_gather"]->lane, static_cast<int>(Channel::shard));
  EXPECT_EQ(by_name["all_gather"]->begin, 0);
  EXPECT_EQ(by_name["all_gather"]->end, 7.75) << "until the wait for it was over";
  EXPECT_EQ(by_name["wait: gathers"]->begin, 2.75);
  EXPECT_EQ(by_name["wait: bubble"]->end - by_name["wait: bubble"]->begin, 16);
  EXPECT_EQ(by_name["step 3"]->end, by_name["step 4"]->begin);
}

// It was awaited, or began before the clock was set.
TEST(StepClock, AWaitForWhatIsNotUnderWayIsElsewhere) {
  Hand hand;
  const auto wait = [&](int64_t ticket, double seconds) {
    hand.clock.begin_wait(ticket);
    hand.now += seconds;
    hand.clock.end();
  };
  for (const int64_t ticket : {1, 2}) {
    hand.clock.begin_transfer(ticket, static_cast<int>(Channel::shard), Transfer::all_gather);
    hand.clock.end();
  }
  wait(1, 1);
  wait(1, 2);
  EXPECT_EQ(hand.clock.so_far(), accounts({{Account::gathers, 1}, {Account::elsewhere, 2}}));
  hand.clock.align();
  wait(2, 4);
  EXPECT_EQ(hand.clock.so_far(), accounts({{Account::elsewhere, 4}}));
}

// A training as it is: its time is that of the wall, and what nothing accounts for is little (in the step that others
// interrupt least).
TEST(StepClock, AccountsOfATrainingAddUpToItsTime) {
  Config config = small_config();
  config.model = {.layers = 4, .hidden = 128, .heads = 4, .vocab = 500, .context = 64, .dropout = 0.1};
  config.batch = {.sequence_length = 64, .global_batch_size = 8, .microbatch_size = 4};
  config.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
  config.memory.offload_activations = true;
  SmallRun run(config);
  run.steps(1);
  StepClock clock(run.runtime.stream);
  run.stats = [&] { return HostStats{.so_far = clock.so_far(), .resident = 1}; };
  run.runtime.stream.trace().keep_time(&clock);
  double elsewhere = 1;
  for (int64_t step = 1; step <= 4; step++) {
    const double before = StepClock::host_now();
    clock.begin_step();
    const double begin = StepClock::host_now();
    const StepScalars scalars = run.step(step);
    const double end = StepClock::host_now();
    clock.end_step(step);
    const Accounts spent = clock.take();
    EXPECT_GE(total(spent), end - begin);
    EXPECT_LE(total(spent), StepClock::host_now() - before);
    elsewhere = std::min(elsewhere, at(spent, Account::elsewhere) / total(spent));
    for (const Account a : {Account::gemm, Account::attention, Account::elementwise, Account::optimizer,
                            Account::host_copies, Account::input})
      EXPECT_GT(at(spent, a), 0) << name_of(a);
    for (const Account a : {Account::slowed, Account::gathers, Account::launches}) EXPECT_EQ(at(spent, a), 0);
    ASSERT_EQ(scalars.ranks.stats.size(), 1u);
    EXPECT_EQ(scalars.ranks.stats[0].resident, 1);
    const std::vector<Accounts> ranks = accounts_of_ranks({scalars.ranks.stats[0].so_far}, 0, spent);
    for (size_t a = 0; a < num_accounts; a++) EXPECT_NEAR(ranks[0][a], spent[a], 1e-12);
  }
  EXPECT_LT(elsewhere, 0.03);
  run.runtime.stream.trace().keep_time(nullptr);
}

TEST(TraceFile, IsWhatPerfettoReads) {
  const test::Scratch scratch;
  const std::string path = scratch.path("trace.json");
  TraceFile file(path);
  const int shard = static_cast<int>(Channel::shard);
  file.add({"rank \"0\"",
            {{"inner", -1, 1e-6, 2e-6, Account::gemm},
             {"at once", -1, 0, 1e-6, Account::gemm},
             {"outer", -1, 0, 1, Account::elsewhere},
             {"first", shard, 0.1, 0.4},
             {"beside it", shard, 0.2, 0.6},
             {"after it", shard, 0.4, 0.5},
             {"to_host", host_channel, 0.3, 0.7}}});
  file.add({"rank 1", {{"op", -1, 1.0 / 3, 2.0 / 3, Account::gemm}, {"next", -1, 2.0 / 3, 0.7, Account::gemm}}});
  EXPECT_FALSE(std::filesystem::exists(path)) << "before it is whole";
  file.publish();
  const nlohmann::json trace = parse_json(read_file(path));
  EXPECT_EQ(test::trace_faults(trace), std::vector<std::string>{});
  std::map<std::string, nlohmann::json> events;
  for (const nlohmann::json& e : trace["traceEvents"])
    if (e["ph"] == "X") events[e["name"]] = e;
  EXPECT_EQ(events.size(), 9u);
  EXPECT_EQ(events["first"]["tid"], events["after it"]["tid"]);
  EXPECT_NE(events["first"]["tid"], events["beside it"]["tid"]);
  EXPECT_EQ(events["inner"]["cat"], "GEMM");
  EXPECT_EQ(events["inner"]["ts"], 1.0);
  EXPECT_EQ(events["to_host"]["dur"], 4e5);
}

TEST(TraceFile, TheCheckerFindsFaults) {
  const auto faults = [](const char* events) {
    return test::trace_faults(
               parse_json(std::string(R"({"traceEvents":[)"
                                      R"({"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"p"}},)"
                                      R"({"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"t"}})") +
                          events + "]}"))
        .size();
  };
  EXPECT_EQ(
      faults(
          R"(,{"ph":"X","name":"a","pid":0,"tid":0,"ts":1,"dur":2},{"ph":"X","name":"b","pid":0,"tid":0,"ts":3,"dur":2})"),
      0u);
  EXPECT_EQ(
      faults(
          R"(,{"ph":"X","name":"a","pid":0,"tid":0,"ts":1,"dur":2},{"ph":"X","name":"b","pid":0,"tid":0,"ts":2,"dur":2})"),
      1u);
  EXPECT_EQ(faults(R"(,{"ph":"X","name":"a","pid":0,"tid":1,"ts":1,"dur":2})"), 1u) << "a thread without a name";
  EXPECT_EQ(faults(R"(,{"ph":"X","name":"a","pid":0,"tid":0,"ts":1})"), 1u);
  EXPECT_EQ(faults(R"(,{"ph":"X","name":"a","pid":0,"tid":0,"ts":-1,"dur":1})"), 1u);
  EXPECT_EQ(faults(R"(,{"ph":"B","name":"a","pid":0,"tid":0,"ts":1})"), 1u);
  EXPECT_EQ(faults(R"(,{"ph":"M","name":"thread_name","pid":0,"tid":4,"args":{}})"), 1u);
}

TEST(StepRange, OneStepOrSeveral) {
  EXPECT_EQ(step_range("10")->first, 10);
  EXPECT_EQ(step_range("10")->last, 10);
  EXPECT_EQ(step_range("10-12")->first, 10);
  EXPECT_EQ(step_range("10-12")->last, 12);
  for (const char* wrong : {"", "-", "0", "12-10", "10-", "-3", "a", "1-2-3", "10 - 12", "1.5", "99999999999999999999"})
    EXPECT_FALSE(step_range(wrong)) << wrong;
}

}  // namespace
}  // namespace megalith
