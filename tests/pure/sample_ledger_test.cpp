// The ledger of samples: which orders a checkpoint tells of, and what an audit of metrics finds.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/message_of.h"
#include "trainer/checkpointing/run_fingerprint.h"
#include "trainer/train/audit.h"

namespace megalith {
namespace {

// Data, then other data, then the first again: three orders, and a start that changes nothing makes none.
TEST(Orders, DataThatComesBackBeginsAnotherOrder) {
  nlohmann::json state, steps = nlohmann::json::array();
  int64_t step = 0;
  for (const int64_t samples : {10, 20, 20, 10}) {
    RunFingerprint here;
    here.sources = {{.name = "x", .content = "", .share = 1, .samples = samples}};
    here.settings = {{"data.shuffle", "true"}, {"data.seed", "1"}};
    state["orders"] = orders_with(state, step, 4 * step, here);
    step += 5;
  }
  for (const nlohmann::json& order : state["orders"]) steps.push_back({order.at("step"), order.at("sample")});
  EXPECT_EQ(steps, (nlohmann::json{{0, 0}, {5, 20}, {15, 60}}));
}

// As many samples of other content are other samples; and orders that say nothing of content go on as they did.
TEST(Orders, OtherContentOfTheSameSizeBeginsAnotherOrder) {
  const auto fingerprint = [](const char* content) {
    RunFingerprint here;
    here.sources = {{.name = "x", .content = content, .share = 1, .samples = 10}};
    here.settings = {{"data.shuffle", "true"}, {"data.seed", "1"}};
    return here;
  };
  nlohmann::json state;
  for (const char* content : {"a", "a", "b", "a"}) state["orders"] = orders_with(state, 5, 20, fingerprint(content));
  EXPECT_EQ(state["orders"].size(), 3u) << state;
  nlohmann::json earlier;
  earlier["orders"] = orders_with({}, 0, 0, fingerprint("a"));
  earlier["orders"][0]["sources"][0].erase("content");
  EXPECT_EQ(orders_with(earlier, 5, 20, fingerprint("a")).size(), 1u);
}

TEST(Audit, WhatIsMissingOrSkippedIsTold) {
  std::string metrics;
  for (int i = 0; i < 6; i++)
    metrics += fmt::format("{{\"step\":{},\"loss\":1.0,\"ranks\":1,\"samples\":[{},{}]}}\n", i + 1, 4 * i, 4 * i + 4);
  const auto of = [](std::vector<int64_t> sizes) {
    return OrderRecord{
        .step = 0, .sample = 0, .names = {"x"}, .order = SampleOrder(std::move(sizes), Blend({1}), true, 1)};
  };
  EXPECT_EQ(audit(metrics, {{"c", 6, 24}}, {of({10})}).violation, "");
  EXPECT_SAYS(audit(metrics, {{"c", 7, 28}}, {of({10})}).violation, "metrics.jsonl ends with step 6");
  EXPECT_SAYS(audit(metrics, {}, {}).violation, "no checkpoint says in which order");
  metrics += "{\"step\":7,\"loss\":1.0,\"ranks\":1,\"sam";  // cut short by a death
  EXPECT_EQ(audit(metrics, {}, {of({10})}).violation, "");
  EXPECT_SAYS(message_of([&] { audit("{\"step\":1,\"loss\":2.0}\n", {}, {of({10})}); }), "line 1", "does not say");
  const std::string skipped = "{\"step\":1,\"loss\":null,\"skipped\":\"not finite\",\"ranks\":2,\"samples\":[0,4]}\n";
  EXPECT_SAYS(audit(skipped, {}, {of({10})}).lines.front(), "step 1, samples [0, 4): skipped (not finite)");
}

}  // namespace
}  // namespace megalith
