// The search finds what trying everything finds.
#include "trainer/planner/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>

#include "tests/pure/small_run.h"
#include "trainer/planner/verdict.h"

namespace megalith {
namespace {

Config asked() {
  Config config = small_config();
  config.model = {.layers = 8, .hidden = 512, .heads = 8, .vocab = 1000, .context = 256, .dropout = 0};
  config.batch = {.sequence_length = 256, .global_batch_size = 64, .microbatch_size = 1};
  config.run.device = Device::cpu;
  return config;
}

Hardware machines() {
  Hardware h = load_hardware(MEGALITH_SOURCE_DIR "/configs/hardware/p4d.24xlarge.toml");
  h.device.per_node = 4;
  h.device.memory = 0.5;
  h.device.reserved = 0;
  return h;
}

TEST(SearchLayouts, NothingIsDroppedThatCouldBeFaster) {
  Hardware h = machines();  // on which nothing but products and the bubble takes time
  h.device.kind = DeviceKind::cpu;
  h.device.bandwidth = 1e6;
  h.device.memory = 1000;
  h.node.link = h.network.link = 1e6;
  h.node.latency = h.network.latency = 0;
  h.calibrated = {.gemm = 1, .collective_delay = 0, .overlap = 0, .launch = 0, .microbatch = 0, .step = 0};
  h.stack.attention_share = 1;
  const Search all = search(asked(), h, 8, 1'000'000), few = search(asked(), h, 8, 5);
  EXPECT_GT(few.too_slow, 0);
  for (size_t i = 0; i < 5; i++) EXPECT_EQ(few.best.at(i).config, all.best.at(i).config) << i;
}

TEST(SearchLayouts, TheFastestOfAllThatFit) {
  const Search all = search(asked(), machines(), 8, 1'000'000), few = search(asked(), machines(), 8, 5);
  EXPECT_EQ(all.too_slow, 0);
  EXPECT_GT(all.too_large, 0);
  EXPECT_GT(few.too_slow, 0);
  ASSERT_EQ(few.best.size(), 5u);
  for (size_t i = 0; i < few.best.size(); i++) {
    EXPECT_EQ(few.best[i].config, all.best[i].config) << i;
    EXPECT_EQ(few.best[i].prediction.seconds, all.best[i].prediction.seconds);
  }
  const auto seconds = [](const Candidate& c) { return c.prediction.seconds; };
  EXPECT_TRUE(std::ranges::is_sorted(all.best, {}, seconds));
  std::set<int64_t> tensor, pipeline;
  bool without_sequence = false, v_with_more_memory = false;
  for (const Candidate& c : all.best) {
    const ParallelConfig& p = c.config.parallel;
    without_sequence |= p.tensor_parallel_degree > 1 && !p.sequence_parallel;
    v_with_more_memory |= p.pipeline_schedule == PipelineSchedule::zb_v && p.active_microbatches > 0;
    EXPECT_LE(c.device_bytes, 1 << 29);
    EXPECT_NO_THROW(validate(c.config));
    EXPECT_EQ(c.config.model, asked().model);
    EXPECT_EQ(c.config.batch.global_batch_size, 64);
    tensor.insert(p.tensor_parallel_degree);
    pipeline.insert(p.pipeline_parallel_degree);
  }
  EXPECT_EQ(tensor, (std::set<int64_t>{1, 2, 4}));
  EXPECT_EQ(pipeline, (std::set<int64_t>{1, 2, 4, 8}));
  EXPECT_TRUE(without_sequence && v_with_more_memory);
  const Candidate& best = few.best.front();
  EXPECT_EQ(predict(best.config, machines(), dry_run_stages(best.config, {}, 8, true)).seconds, seconds(best));
}

TEST(SearchLayouts, WhatWaitsOnTheHostHasToFitThere) {
  Config config = asked();
  config.memory.offload_optimizer = 1;
  Hardware h = machines();
  h.device.memory = 1000;
  EXPECT_FALSE(search(config, h, 8, 1).best.empty());
  h.host.memory = 1e-3;
  EXPECT_TRUE(search(config, h, 8, 1).best.empty());
}

TEST(SearchLayouts, IsReadOnATerminalOf80Columns) {
  Hardware h = machines();
  h.device.memory = 1000;
  h.node.link = h.network.link = 0.1;  // so that time goes to more than one thing
  const Search found = search(asked(), h, 8, 1'000'000);
  const std::string text = report(found, h);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_NE(text.find(" %,\n"), std::string::npos) << "none takes a further line:\n" << text;
  EXPECT_EQ(text.find("e+"), std::string::npos) << text;
}

// The ranks of a node share its host.
TEST(SearchLayouts, AHostHoldsWhatAllRanksOfItsNodeKeepThere) {
  Config config = asked();
  config.model.layers = 2;
  config.batch.global_batch_size = 8;
  config.memory.offload_optimizer = 1;
  Hardware h = machines();
  const auto on_host = [&](const Candidate& c) {
    int64_t most = 0;
    for (const MemorySizes& sizes : dry_run_stages(c.config, h, 8, false).memory)
      most = std::max(most, sizes.total(MemoryPlace::host));
    return h.device.per_node * most;
  };
  const std::vector<Candidate> all = search(config, h, 8, 1'000'000).best;
  std::vector<int64_t> needed;
  for (const Candidate& c : all) needed.push_back(on_host(c));
  const auto [least, most] = std::ranges::minmax(needed);
  ASSERT_GT(most, 4 * least) << "or nothing is dropped";
  h.host.memory = gib(2 * least);
  const std::vector<Candidate> found = search(config, h, 8, 1'000'000).best;
  EXPECT_FALSE(found.empty());
  for (const Candidate& c : found) EXPECT_LE(on_host(c), 2 * least);
}

TEST(SearchLayouts, SaysWhichMemoryNothingFits) {
  const auto said = [](const Config& config, const Hardware& h) {
    const Search none = search(config, h, 8, 10);
    EXPECT_TRUE(none.best.empty());
    return report(none, h);
  };
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  Hardware h = machines();
  h.device.memory = 0.001;
  const std::string of_device = said(asked(), h);
  EXPECT_TRUE(says(of_device, "none fits NVIDIA A100-SXM4-40GB with 0.001 GiB each")) << of_device;
  EXPECT_FALSE(says(of_device, "tokens/s")) << "a header above no row: " << of_device;
  h.device.memory = 1000;
  h.host.memory = 1e-3;
  Config config = asked();
  config.memory.offload_optimizer = 1;
  const std::string of_host = said(config, h);
  EXPECT_TRUE(says(of_host, "none fits a host of 0.001 GiB")) << of_host;
  EXPECT_TRUE(says(of_host, "memory.offload_optimizer")) << of_host;
  EXPECT_FALSE(says(of_host, "none fits NVIDIA")) << of_host;
}

// The watch is told of growing shares, and of the best so far, and can end the search.
TEST(SearchLayouts, TellsWhatItHasFoundAndCanBeEnded) {
  double share = 0, best = std::numeric_limits<double>::infinity();
  const Search whole = search(asked(), machines(), 8, 3, [&](double now, const Search& found) {
    EXPECT_GT(now, share);
    share = now;
    if (!found.best.empty()) {
      EXPECT_LE(found.best[0].prediction.seconds, best);
      best = found.best[0].prediction.seconds;
    }
    return true;
  });
  EXPECT_EQ(share, 1);
  EXPECT_FALSE(whole.ended_early);
  const Search cut = search(asked(), machines(), 8, 3, [](double, const Search& found) { return found.best.empty(); });
  EXPECT_TRUE(cut.ended_early);
  ASSERT_FALSE(cut.best.empty());
  EXPECT_LT(cut.tried + cut.too_slow, whole.tried + whole.too_slow);
  EXPECT_NE(report(cut, machines()).find("ended early"), std::string::npos);
  EXPECT_EQ(report(whole, machines()).find("ended early"), std::string::npos);
}

}  // namespace
}  // namespace megalith
