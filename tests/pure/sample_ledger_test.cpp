// The ledger of samples: which orders a checkpoint tells of, and what an audit of metrics finds.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/message_of.h"
#include "trainer/checkpointing/sample_orders.h"
#include "trainer/train/audit.h"

namespace megalith {
namespace {

// Sources of these numbers of tokens; those of one name begin alike, those of others do not.
struct Source {
  std::string name;
  int64_t tokens;
  int64_t share = 1;
};
struct Data {
  Loader loader;
  RunFingerprint here;
};
Data data_of(const std::vector<Source>& sources, int64_t length = 10, uint64_t seed = 1, bool shuffle = true) {
  std::vector<TokenStream> streams;
  std::vector<int64_t> shares;
  for (const Source& s : sources) {
    std::vector<int32_t> tokens(static_cast<size_t>(s.tokens));
    for (size_t i = 0; i < tokens.size(); i++) tokens[i] = static_cast<int32_t>((s.name[0] * 7 + i * i) % 251);
    streams.push_back(TokenStream::of(s.name, std::move(tokens), {}));
    shares.push_back(s.share);
  }
  Data data{Loader(std::move(streams), Blend(shares), length, shuffle, seed), {}};
  for (size_t i = 0; i < sources.size(); i++) {
    const TokenStream& stream = data.loader.streams()[i];
    data.here.sources.push_back({.name = sources[i].name,
                                 .content = fmt::format("{} {}", sources[i].name, sources[i].tokens),
                                 .share = data.loader.order().blend().shares()[i],
                                 .samples = data.loader.order().sizes()[i],
                                 .left_out = data.loader.left_out(i),
                                 .tokens = stream.size(),
                                 .tokens_hash = hash_of_tokens(stream, stream.size())});
  }
  return data;
}

// Follows a run that continues after each 4 samples with the next of these data. Returns where its sources begin.
std::vector<std::vector<SourceBegin>> begins_of(const std::vector<Data>& all, nlohmann::json& state) {
  std::vector<std::vector<SourceBegin>> begins;
  int64_t step = 0;
  for (const Data& data : all) {
    state["orders"] = orders_with(state, step, 4 * step, data.here, data.loader);
    begins.push_back(orders_from(state["orders"]).back().order.begins());
    step++;
  }
  return begins;
}

// Data, then other data, then the first again: three orders, and a start that changes nothing makes none.
TEST(Orders, DataThatComesBackGoesOnWhereItWas) {
  nlohmann::json state;
  using Begins = std::vector<std::vector<SourceBegin>>;
  EXPECT_EQ(
      begins_of({data_of({{"x", 101}}), data_of({{"y", 101}}), data_of({{"y", 101}}), data_of({{"x", 101}})}, state),
      (Begins{{{.key = 0}}, {{.key = 1}}, {{.key = 1}}, {{.key = 0, .taken = 4}}}));
  EXPECT_EQ(state["orders"].size(), 3u) << state;
}

TEST(Orders, ASourceIsKnownByItsTokensWhateverItsPlaceAndItsName) {
  nlohmann::json state;
  const auto begins = begins_of({data_of({{"x", 101}, {"y", 101}}), data_of({{"y", 101}, {"x", 101}}),
                                 data_of({{"y", 121}, {"z", 101}, {"x", 101, 2}})},
                                state);
  EXPECT_EQ(begins[1], (std::vector<SourceBegin>{{.key = 1, .taken = 2}, {.key = 0, .taken = 2}}));
  EXPECT_EQ(begins[2], (std::vector<SourceBegin>{{.key = 1, .rest = 8}, {.key = 2}, {.key = 0, .taken = 4}}))
      << "y grew by 20 tokens, of which 8 samples of 10 did not come: 4 in the first, 2 in the second order";
}

TEST(Orders, OtherLengthsAndSeedsGoOnWithWhatDidNotCome) {
  nlohmann::json state;
  const auto begins =
      begins_of({data_of({{"x", 101}}), data_of({{"x", 101}}, 20), data_of({{"x", 101}}, 20, 2)}, state);
  EXPECT_EQ(begins[1][0], (SourceBegin{.rest = 3}));
  EXPECT_EQ(begins[2][0], (SourceBegin{.epoch = 1, .taken = 0, .rest = 4})) << "3 of the rest, 1 of the next epoch";
  EXPECT_EQ(tokens_of_samples(state["orders"], 4, 0), 40);
  EXPECT_EQ(tokens_of_samples(state["orders"], 9, 0), 40 + 80 + 20);
}

// What an older Megalith wrote has neither lengths nor tokens nor beginnings.
TEST(Orders, OlderRecordsAreCompletedByTheSettings) {
  const Data first = data_of({{"x", 101}, {"y", 101}}), second = data_of({{"x", 101, 1}, {"y", 101, 3}});
  nlohmann::json state;
  state["orders"] = orders_with({}, 0, 0, first.here, first.loader);
  for (const char* key : {"sequence_length", "pack"}) state["orders"][0].erase(key);
  for (nlohmann::json& source : state["orders"][0]["sources"])
    for (const char* key : {"begin", "tokens", "masked", "tokens_hash"}) source.erase(key);
  state["course"]["settings"]["batch.sequence_length"] = "10";
  EXPECT_EQ(orders_with(state, 2, 8, first.here, first.loader), state["orders"]);
  const nlohmann::json changed = orders_with(state, 2, 8, second.here, second.loader);
  EXPECT_EQ(order_from(changed.back()).order.begins(),
            (std::vector<SourceBegin>{{.key = 0, .taken = 4}, {.key = 1, .taken = 4}}));
}

// The audit follows a run over changes, and finds samples that come twice.
TEST(Audit, FollowsChangesAndFindsWhatIsRepeated) {
  std::string metrics;
  for (int i = 0; i < 6; i++)
    metrics += fmt::format("{{\"step\":{},\"loss\":1.0,\"ranks\":1,\"samples\":[{},{}]}}\n", i + 1, 4 * i, 4 * i + 4);
  nlohmann::json state;
  for (const auto& [step, data] : {std::pair(0, data_of({{"x", 241}, {"y", 241}})),
                                   {2, data_of({{"y", 241}, {"x", 241, 3}})},
                                   {3, data_of({{"x", 241}}, 20)},
                                   {5, data_of({{"x", 301}, {"y", 241}}, 20, 2)}})
    state["orders"] = orders_with(state, step, 4 * step, data.here, data.loader);
  const Audit well = audit(metrics, {}, orders_from(state["orders"]));
  EXPECT_EQ(well.violation, "");
  EXPECT_SAYS(fmt::format("{}", fmt::join(well.lines, "\n")), "from step 3 on", "from step 4 on", "from step 6 on",
              "each source continues where it was", "of the rest of epoch");
  for (const auto& [record, source, key, value] :
       {std::tuple(1, 1, "taken", 3), {2, 0, "rest", 9}, {2, 0, "epoch", 1}, {3, 0, "rest", 15}}) {
    nlohmann::json orders = state["orders"];
    orders[static_cast<size_t>(record)]["sources"][static_cast<size_t>(source)]["begin"][key] = value;
    EXPECT_SAYS(audit(metrics, {}, orders_from(orders)).violation, "continues");
  }
}

TEST(Audit, WhatIsMissingOrSkippedIsTold) {
  std::string metrics;
  for (int i = 0; i < 6; i++)
    metrics += fmt::format("{{\"step\":{},\"loss\":1.0,\"ranks\":1,\"samples\":[{},{}]}}\n", i + 1, 4 * i, 4 * i + 4);
  const auto of = [](std::vector<int64_t> sizes) {
    return OrderRecord{.step = 0,
                       .sample = 0,
                       .sources = {{.name = "x", .content = ""}},
                       .order = SampleOrder(std::move(sizes), Blend({1}), true, 1)};
  };
  EXPECT_EQ(audit(metrics, {{"c", 6, 24}}, {of({10})}).violation, "");
  EXPECT_SAYS(audit(metrics, {{"c", 7, 28}}, {of({10})}).violation, "metrics.jsonl ends with step 6");
  EXPECT_SAYS(audit(metrics, {}, {}).violation, "no checkpoint records in which order");
  metrics += "{\"step\":7,\"loss\":1.0,\"ranks\":1,\"sam";  // cut short by a death
  EXPECT_EQ(audit(metrics, {}, {of({10})}).violation, "");
  EXPECT_SAYS(message_of([&] { audit("{\"step\":1,\"loss\":2.0}\n", {}, {of({10})}); }), "line 1",
              "does not record its samples");
  const std::string skipped = "{\"step\":1,\"loss\":null,\"skipped\":\"not finite\",\"ranks\":2,\"samples\":[0,4]}\n";
  EXPECT_SAYS(audit(skipped, {}, {of({10})}).lines.front(), "step 1, samples [0, 4): skipped (not finite)");
}

}  // namespace
}  // namespace megalith
