// What reshard writes is, byte by byte, what ranks write that load a checkpoint and save it again.
#include "trainer/checkpointing/reshard.h"

#include <malloc.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "checkpoints/difference.h"
#include "data/tokenizers/tokenizer.h"
#include "kernels/system/folder_lock.h"
#include "tests/checkpoints/helpers.h"
#include "tests/mpi/on_all_ranks.h"
#include "trainer/checkpointing/checkpointer.h"
#include "trainer/checkpointing/resumer.h"
#include "trainer/checkpointing/state_difference.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/job/agreement.h"
#include "trainer/session/single_rank.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

struct Layout {
  int ranks;
  std::vector<std::string> overrides;
};

const std::vector<Layout> resharded_layouts = {
    {1, {}},
    {4, {}},
    {4, {"parallel.sharded_data_parallel_degree=2"}},
    {4, {"parallel.tensor_parallel_degree=2", "parallel.pipeline_parallel_degree=2"}},
    {6, {"parallel.tensor_parallel_degree=3", "parallel.sequence_parallel=true"}},
    {8,
     {"parallel.pipeline_parallel_degree=4", "parallel.virtual_stages=2", "parallel.pipeline_schedule=zb_h1",
      "parallel.sharded_data_parallel_degree=1"}},
    {8,
     {"parallel.tensor_parallel_degree=2", "parallel.pipeline_parallel_degree=2", "parallel.virtual_stages=2",
      "parallel.pipeline_schedule=zb_v"}}};

Config config_of(const Layout& layout, const std::string& home, const std::string& directory) {
  Config config = deep_model(8);
  config.model.key_value_heads = 1;  // on all ranks of a tensor group
  config.checkpoint.directory = home + "/" + directory;
  config.data.tokenizer = "somewhere";  // runs keep a copy
  config.run.output = home + "/run";
  return parse_config(to_toml(config), "the test", layout.overrides);
}

// Returns the manifest without what names its directory.
std::string manifest_of(const std::string& path) {
  Manifest manifest = read_manifest(path);
  Config config = parse_config(manifest.state.at("config").get<std::string>(), "the test");
  config.checkpoint.directory.clear();
  manifest.state["config"] = to_toml(config);
  return to_text(manifest);
}

void expect_same_files(const std::string& a, const std::string& b) {
  EXPECT_EQ(manifest_of(a), manifest_of(b));
  for (const FileRecord& file : read_manifest(a).files)
    EXPECT_TRUE(read_file(a + "/" + file.name) == read_file(b + "/" + file.name)) << file.name;
}

TEST(Reshard, WritesWhatRanksOfThatLayoutWrite) {
  const test::TemporaryFolder mine;
  const std::string home = session().broadcast_text(mine.path());
  const Config alone = config_of({1, {}}, home, "alone");
  const std::string source = CheckpointStore(alone.checkpoint.directory).path_of(3);
  if (session().rank() == 0) {
    fs::create_directories(run_tokenizer(alone));
    make_byte_tokenizer()->save(run_tokenizer(alone));
    SmallRun run(alone);
    for (int64_t s : {0, 1, 2}) run.step(s);
    Stability stability;
    for (int64_t s : {1, 2, 3}) stability.record(s, false, 3);
    Checkpointer(alone, SingleRank(), run.trainer).save({.step = 3, .sequences = 24, .stability = stability});
  }
  session().broadcast_text("saved");
  int number = 0;
  for (const Layout& layout : resharded_layouts) {
    if (layout.ranks != session().size()) continue;
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout.overrides, " ")));
    Config config = config_of(layout, home, fmt::format("deeper/loaded_{}", number));
    config.checkpoint.resume = source;
    SmallRun run = on_all_ranks(config);
    Resumer resumer(config, session(), run.trainer);
    const auto progress = resumer.resume();
    ASSERT_TRUE(progress);
    config.checkpoint.resume = alone.checkpoint.resume;
    const std::string loaded = Checkpointer(config, session(), run.trainer, resumer.record()).save(*progress).path;
    if (session().rank() == 0) {
      const std::string resharded = reshard({.from = source,
                                             .to = fmt::format("{}/deeper/resharded_{}", home, number),
                                             .ranks = layout.ranks,
                                             .overrides = layout.overrides});
      expect_same_files(resharded, loaded);
      EXPECT_TRUE(verify_checkpoint(resharded).damaged.empty());
      // And back.
      std::vector<std::string> back;
      for (const std::string& override : layout.overrides) {
        const std::string key = override.substr(0, override.find('='));
        back.push_back(key + "=" + key_values(alone).at(key));
      }
      const std::string to = fmt::format("{}/back_{}", home, number);
      expect_same_files(reshard({.from = resharded, .to = to, .ranks = 1, .overrides = back}), source);
      // Which diff says as well: only the configuration is another.
      CheckpointReader a(source), b(resharded);
      EXPECT_TRUE(compare_tensors(a, b).different.empty());
      EXPECT_TRUE(compare_states(a.manifest(), b.manifest()).state.empty());
    }
    session().broadcast_text("compared");
    number++;
  }
  EXPECT_GT(number, 0);
}

// One rank's checkpoint of a model that is mostly its token table: 12 million weights in f32, and moments in bf16.
std::string write_large(const std::string& directory) {
  Config config;
  config.model = {.layers = 1, .hidden = 16, .heads = 1, .vocab = 750'000, .context = 8, .dropout = 0};
  config.batch = {.sequence_length = 8, .global_batch_size = 8, .microbatch_size = 1};
  config = resolve(config);
  std::vector<ShardToWrite> shards;
  std::vector<float> values(1 << 22);
  for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i % 1000);
  for (const TensorShard& shard : saved_shards(config, make_plan(config, 1, 0)))
    shards.emplace_back(shard, shard.name.starts_with(parameters_path) ? DType::f32 : DType::bf16,
                        [&values](int64_t begin, int64_t, const auto& use) {
                          use(values.data() + begin % 7);  // any values will do
                        });
  const std::string folder = CheckpointStore(directory).begin(5);
  Manifest manifest{
      .step = 5, .state = {{"model", describe_model(config.model)}, {"config", to_toml(config)}}, .files = {}};
  manifest.files.push_back(RankFileWriter().write(folder, 0, shards));
  return CheckpointStore(directory).publish(folder, std::move(manifest));
}

// KiB that the process takes more, at its most, than before.
int64_t taken_by(const std::function<void()>& work) {
  const auto peak = [] {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
    return 0LL;
  };
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
  const int64_t before = peak();
  work();
  return peak() - before;
}

TEST(Reshard, TakesLittleMemory) {
  if (session().size() > 1) GTEST_SKIP() << "one process does it";
  const test::TemporaryFolder folder;
  const std::string source = write_large(folder / "one");
  const int64_t usual = ReshardOptions{}.memory, little = 6 << 20;
  std::map<int64_t, std::string> written;
  for (const int64_t memory : {usual, little}) {
    const auto work = [&] {
      written[memory] =
          reshard({.from = source, .to = fmt::format("{}/{}", folder.path(), memory), .ranks = 4, .memory = memory});
    };
    EXPECT_LT(taken_by(work), memory >> 10) << "KiB, of 96 MB";
  }
  CheckpointReader a(source), b(written[usual]);
  EXPECT_EQ(b.manifest().files.size(), 4u);
  expect_same_files(written[little], written[usual]);
  TensorComparison comparison;
  EXPECT_LT(taken_by([&] { comparison = compare_tensors(a, b); }), 40 << 10) << "KiB";
  EXPECT_TRUE(comparison.different.empty());
  EXPECT_GT(comparison.elements, 36'000'000);
}

class ReshardRefuses : public ::testing::Test {
 protected:
  ReshardRefuses() : config_(config_of({1, {}}, folder_.path(), "alone")), source_(folder_ / "alone/step-00000003") {
    if (session().size() > 1) return;
    SmallRun run(config_);
    Checkpointer(config_, SingleRank(), run.trainer).save({.step = 3, .sequences = 24});
  }
  std::string refusal(const ReshardOptions& options) const {
    return message_of([&] { reshard(options); });
  }
  void expect_nothing_written() const { EXPECT_TRUE(CheckpointStore(folder_ / "to").usable().empty()); }

  const test::TemporaryFolder folder_;
  const Config config_;
  const std::string source_;
};

TEST_F(ReshardRefuses, WhatItWouldLoseOrChange) {
  if (session().size() > 1) GTEST_SKIP() << "one process does it";
  const auto expect = [&](const ReshardOptions& options, const std::string& words) {
    const std::string message = refusal(options);
    EXPECT_NE(message.find(words), std::string::npos) << message;
    expect_nothing_written();
  };
  const std::string to = folder_ / "to";
  expect({.from = source_, .to = to, .ranks = 2, .overrides = {"precision.master=bf16"}}, "override `precision.master");
  expect({.from = source_, .to = to, .ranks = 2, .overrides = {"train.steps=9"}}, "parallel.* may differ from");
  expect({.from = source_, .to = to, .ranks = 2, .overrides = {"parallel.tensor_parallel_degree=4"}}, "4");
  expect({.from = source_, .to = folder_ / "alone", .ranks = 2}, "is a complete checkpoint and is not overwritten");
  expect({.from = source_, .to = to, .ranks = 2, .memory = 4096}, "--memory of 4096 bytes: a block of 65536 elements");
  {
    make_folders(to, "");
    const FolderLock another(to, "");
    expect({.from = source_, .to = to, .ranks = 2}, "name another directory");
  }
  // A tensor that the model does not have.
  Manifest manifest = read_manifest(source_);
  Manifest altered = manifest;
  DatasetRecord& first = altered.files[0].datasets[0];
  first.dataset = first.shard.name = "momentum/" + first.shard.name;
  test::spill(source_ + "/manifest.json", to_text(altered));
  expect({.from = source_, .to = to, .ranks = 2}, "which a run of this program would not save");
  test::spill(source_ + "/manifest.json", to_text(manifest));
  // An element that is not there, which is known before anything is made.
  altered = manifest;
  altered.files[0].datasets.back().shard.elements.end--;
  test::spill(source_ + "/manifest.json", to_text(altered));
  expect({.from = source_, .to = folder_ / "nowhere", .ranks = 2}, manifest.files[0].datasets.back().shard.name);
  EXPECT_FALSE(fs::exists(folder_ / "nowhere"));
  test::spill(source_ + "/manifest.json", to_text(manifest));
  // A flipped byte, which is met half-way: nothing of what was begun stays.
  const DatasetRecord& last = manifest.files[0].datasets.back();
  const std::string path = source_ + "/" + manifest.files[0].name, byte = read_file(path).substr(last.offset, 1);
  test::poke(path, static_cast<size_t>(last.offset), byte == "x" ? "y" : "x");
  expect({.from = source_, .to = to, .ranks = 2}, "is damaged: checksum");
  EXPECT_FALSE(fs::exists(to + "/.step-00000003.partial"));
  test::poke(path, static_cast<size_t>(last.offset), byte);
  reshard({.from = source_, .to = to, .ranks = 2});
  EXPECT_EQ(CheckpointStore(to).usable().size(), 1u);
}

// The memory that a block takes is counted to the byte: its elements as they are read and in f32 and bf16, twice on
// their way to the disk, and the rows of the largest shard, of the old files or the new.
TEST_F(ReshardRefuses, TooLittleMemoryWithWhatABlockTakes) {
  if (session().size() > 1) GTEST_SKIP() << "one process does it";
  const auto rows_in = [](const std::vector<TensorShard>& shards) {
    int64_t rows = 0;
    for (const TensorShard& shard : shards)
      if (shard.numel() > 0) rows = std::max(rows, shard.numel() / shard.columns.size() + 2);
    return rows;
  };
  const int64_t rows = rows_in(saved_shards(config_, make_plan(config_, 1, 0)));
  ASSERT_GT(rows, rows_in(saved_shards(config_, make_plan(config_, 4, 0)))) << "one rank has the largest shards";
  const std::string takes = fmt::format("a block of 65536 elements takes {};",
                                        65536 * (4 + 4 + 2 + 2 * 4) + rows * CheckpointReader::bytes_of_a_row);
  const std::string several = reshard({.from = source_, .to = folder_ / "several", .ranks = 4});
  for (const auto& [from, ranks] : {std::pair{source_, 4}, {several, 1}}) {
    const std::string message = refusal({.from = from, .to = folder_ / "to", .ranks = ranks, .memory = 4096});
    EXPECT_NE(message.find(takes), std::string::npos) << takes << "\n" << message;
  }
}

using ReshardTakes = ReshardRefuses;

// The directory of a run's checkpoints stands for the newest; the shape of the model is the checkpoint's, whatever the
// configuration leaves to the tokenizer; and who has written it is this program.
TEST_F(ReshardTakes, ARunsDirectoryAndTheShapeOfItsCheckpoint) {
  if (session().size() > 1) GTEST_SKIP() << "one process does it";
  const std::string whole = reshard({.from = source_, .to = folder_ / "whole", .ranks = 2});
  Manifest manifest = read_manifest(source_);
  Config config = parse_config(manifest.state.at("config").get<std::string>(), "the test");
  config.model.vocab = 0;
  manifest.state["config"] = to_toml(config);
  manifest.state["written_by"] = "an earlier program";
  test::spill(source_ + "/manifest.json", to_text(manifest));
  const std::string again = reshard({.from = folder_ / "alone", .to = folder_ / "again", .ranks = 2});
  expect_same_files(again, whole);
  EXPECT_EQ(read_manifest(again).state.at("written_by"), read_manifest(whole).state.at("written_by"));
}

}  // namespace
}  // namespace megalith
