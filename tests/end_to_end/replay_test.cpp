// `megalith replay`: one step again, on any number of ranks in any layout, and the first op whose output is not finite.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "checkpoints/checksum.h"
#include "checkpoints/manifest.h"
#include "tests/end_to_end/layout.h"

namespace megalith::e2e {
namespace {

// Writes a value over all elements of a tensor in a checkpoint, as if the run had saved it.
void fill_in_checkpoint(const std::string& folder, const std::string& tensor, float value) {
  Manifest manifest = read_manifest(folder);
  int64_t filled = 0;
  for (FileRecord& file : manifest.files)
    for (DatasetRecord& d : file.datasets) {
      if (d.shard.name != tensor) continue;
      std::string bytes = read_file(folder + "/" + file.name);
      for (int64_t i = 0; i < d.shard.numel(); i++) std::memcpy(bytes.data() + d.offset + i * 4, &value, sizeof value);
      d.checksum = checksum_of(bytes.data() + d.offset, d.bytes());
      write_file(folder + "/" + file.name, bytes);
      filled += d.shard.numel();
    }
  EXPECT_GT(filled, 0) << tensor << " is not in " << folder;
  write_file(folder + "/manifest.json", to_text(manifest));
}

// Writes a value over an element of a tensor in a checkpoint, where it is first held, as if the run had saved it.
void plant_in_checkpoint(const std::string& folder, const std::string& tensor, int64_t element, float value) {
  Manifest manifest = read_manifest(folder);
  for (FileRecord& file : manifest.files)
    for (DatasetRecord& d : file.datasets) {
      const TensorShard& p = d.shard;
      if (p.name != tensor || p.columns.begin != 0 || p.columns.end != p.cols() || element < p.elements.begin ||
          element >= p.elements.end)
        continue;
      std::string bytes = read_file(folder + "/" + file.name);
      std::memcpy(bytes.data() + d.offset + (element - p.elements.begin) * 4, &value, sizeof value);
      d.checksum = checksum_of(bytes.data() + d.offset, d.bytes());
      write_file(folder + "/" + file.name, bytes);
      write_file(folder + "/manifest.json", to_text(manifest));
      return;
    }
  ADD_FAILURE() << tensor << " is not in " << folder;
}

Result replay_on(const Scratch& scratch, int ranks, const std::string& words, Args args) {
  args.insert(args.begin(), {"replay", "run"});
  for (const std::string& o : overrides_of(words)) args.push_back(o);
  return run(mpirun(ranks, args), scratch.folder());
}

// "linear_forward" and "the forward pass of block 3", of the line that names them.
std::string named(const Result& result) {
  const std::string& text = result.out;
  const size_t line = text.find("first not finite: ");
  if (line == std::string::npos) return "nothing";
  const size_t op = line + std::strlen("first not finite: "), comma = text.find(", op ", op),
               of = text.find(" of ", comma);
  return text.substr(op, comma - op) + " in" + text.substr(of + 3, text.find(", microbatch", of) - of - 3);
}

const std::vector<Layout>& replayed_layouts() {
  static const std::vector<Layout> all = {{"odd", 1, ""},
                                          {"odd", 2, "full_shard"},
                                          {"odd", 2, "tensor=2"},
                                          {"odd", 2, "pipeline=2 virtual=2"},
                                          {"odd", 4, "no_shard"},
                                          {"odd", 4, "tensor=2 sequence pipeline=2"},
                                          {"odd", 2, "pipeline=2 virtual=2 schedule=zb_h1"},
                                          {"odd", 4, "tensor=2 sequence pieces=2 pipeline=2 schedule=zb_h1"},
                                          {"odd", 2, "pipeline=2 virtual=2 schedule=v_half"}};
  return all;
}

TEST(Replay, names_what_was_planted_in_every_layout) {
  const Scratch scratch;
  write_odd(scratch);
  train(scratch.folder(), 2, {"train.steps=2"});
  const std::string checkpoint = scratch / "run/checkpoints/step-00000002";
  plant_in_checkpoint(checkpoint, "parameters/h.5.mlp.c_fc.weight", 77, std::numeric_limits<float>::quiet_NaN());
  for (const Layout& layout : replayed_layouts()) {
    SCOPED_TRACE(layout.words);
    const Result result = replay_on(scratch, layout.ranks, layout.words, {"--step", "3"});
    EXPECT_EQ(result.status, 0) << result.text();
    EXPECT_EQ(named(result), "linear_gelu_forward in the forward pass of block 5") << result.text();
    EXPECT_EQ(count(result.out, "before the step the weights h.5.mlp.c_fc.weight were not finite\n"), 1u)
        << result.text();
    EXPECT_EQ(count(result.out, "from run/checkpoints/step-00000002\n"), 1u) << result.text();
    EXPECT_EQ(count(result.out, "step 3: loss nan, norm nan; skipped"), 1u) << result.text();
    EXPECT_EQ(count(result.out, "microbatch 0 (samples "), 1u) << result.text();
  }
}

// A gradient that overflows, of a matrix and of its inputs: what a layer's backward pass does in its second half, where
// it has two, and in its first.
TEST(Replay, names_an_overflow_in_either_half_of_a_backward_pass) {
  const Scratch scratch;
  write_odd(scratch);
  train(scratch.folder(), 1, {"train.steps=2"});
  const std::string checkpoint = scratch / "run/checkpoints/step-00000002";
  const auto fill = [&](const std::string& tensor, float value) {
    fill_in_checkpoint(checkpoint, "parameters/" + tensor, value);
  };
  const auto expect_named = [&](const std::string& op) {
    for (const Layout& layout : {Layout{"odd", 1, ""}, replayed_layouts().end()[-3], replayed_layouts().end()[-2],
                                 replayed_layouts().back()}) {
      SCOPED_TRACE(layout.words);
      const Result result = replay_on(scratch, layout.ranks, layout.words, {"--step", "3"});
      EXPECT_EQ(result.status, 0) << result.text();
      EXPECT_EQ(named(result), op + " in the backward pass of block 5") << result.text();
    }
  };
  fill("ln_f.weight", 1e15f);  // all gradients are large
  fill("h.5.ln_2.weight", 1e34f);
  fill("h.5.mlp.c_fc.weight", 0);
  expect_named("linear_backward_weight");
  for (const char* zero : {"h.5.ln_1.weight", "h.5.ln_1.bias"}) fill(zero, 0);
  fill("h.5.attn.c_attn.weight", 1e37f);
  expect_named("linear_backward_input");
}

// Weights that a learning rate has ruined: every layout overflows in the same op, and the run's own has its bits.
TEST(Replay, finds_where_ruined_weights_overflow) {
  const Scratch scratch;
  write_odd(scratch);
  train(scratch.folder(), 2, {"train.steps=2"});
  const Result diverged = run(mpirun(2, {"train", "config.toml", "train.max_bad_steps=1",
                                         "optimizer.learning_rate=1e30", "checkpoint.allow_changes=true"}),
                              scratch.folder());
  EXPECT_EQ(count(diverged.err, "`megalith replay run --step 4`"), 1u) << diverged.text();
  std::string first;
  for (const Layout& layout : replayed_layouts()) {
    SCOPED_TRACE(layout.words);
    const Result result = replay_on(scratch, layout.ranks, layout.words, {"--step", "4"});
    EXPECT_EQ(result.status, 0) << result.text();
    EXPECT_EQ(count(result.out, "from run/checkpoints/step-00000003.suspect-1\n"), 1u) << result.text();
    EXPECT_EQ(count(result.out, "loss and norm are bit-identical to the run's\n"), 1u) << result.text();
    if (first.empty()) first = named(result);
    EXPECT_NE(first, "nothing");
    EXPECT_EQ(named(result), first) << result.text();
  }
  // From what is left of the run, the step before is made once more, under the rate that ruined it.
  const Result longer = replay_on(scratch, 2, "", {"--step", "4", "--checkpoint", "run/checkpoints/step-00000002"});
  EXPECT_EQ(count(longer.out, "step-00000002, after 1 step in between\nstep 3, before it: loss "), 1u) << longer.text();
  EXPECT_EQ(named(longer), first) << longer.text();
  // Under the rate of another attempt, the suspect is none of its checkpoints.
  train(scratch.folder(), 2, {"train.steps=5"});
  const Result sane = replay_on(scratch, 2, "", {"--step", "5"});
  EXPECT_EQ(count(sane.out, "from run/checkpoints/step-00000002, after 2 steps in between\n"), 1u) << sane.text();
  EXPECT_EQ(named(sane), "nothing");
}

// A step that went well has the run's bits, and nothing is found in it.
TEST(Replay, has_the_bits_of_the_run) {
  const Scratch scratch;
  write_odd(scratch);
  const Args checkpoints{"checkpoint.every=2", "parallel.tensor_parallel_degree=2", "precision.compute=bf16"};
  train(scratch.folder(), 2, checkpoints);
  for (const int64_t s : {2, 5, 6}) {
    const Result result = replay_on(scratch, 2, "", {"--step", std::to_string(s)});
    EXPECT_EQ(count(result.out, "the output of every op is finite\n"), 1u) << result.text();
    const Step step = read_steps(scratch / "run").at(static_cast<size_t>(s - 1));
    EXPECT_EQ(count(result.out, fmt::format("step {}: loss {}, norm {}\n", s, step.loss, step.grad_norm)), 1u)
        << result.text();
  }
  EXPECT_EQ(snapshot(scratch / "run").count("bad-steps/"), 0u);
}

TEST(Replay, refuses_what_is_no_step_of_a_run) {
  const Scratch scratch;
  write_odd(scratch);
  train(scratch.folder(), 1, {"train.steps=1"});
  const auto before = snapshot(scratch.folder());
  const auto refused = [&](const Args& args, const std::string& words) {
    const Result result = run(megalith(args), scratch.folder());
    EXPECT_EQ(result.status, 1) << result.text();
    EXPECT_GE(count(result.err, words), 1u) << words << result.text();
  };
  refused({"replay", "absent", "--step", "1"}, "absent has no config.toml; name the folder of a run");
  refused({"replay", "run", "--step", "0"}, "--step");
  refused({"replay", "run", "--step", "1", "optimizer.learning_rate=1"}, "a replay repeats the step as it was");
  refused({"replay", "run", "--step", "1", "--checkpoint", "run/checkpoints/step-00000001"},
          "is of step 1, which is not before step 1");
  refused({"replay", "run", "--step", "1", "parallel.tensor_parallel_degree=2"}, "parallel.tensor_parallel_degree");
  // From the initial weights there is always a way.
  const Result first = run(megalith({"replay", "run", "--step", "1"}), scratch.folder());
  EXPECT_EQ(count(first.out, "the initial weights, since no checkpoint is older"), 1u) << first.text();
  EXPECT_EQ(snapshot(scratch.folder()), before) << "nothing is written";
}

// An evaluation of weights that are not finite is no success.
TEST(Replay, evaluate_ends_with_an_error_where_the_loss_is_not_finite) {
  const Scratch scratch;
  write_odd(scratch);
  train(scratch.folder(), 1, {"train.steps=1"});
  const Args args{"evaluate",          "--checkpoint", "run",         "--data", "tokens.bin",
                  "--sequence-length", "24",           "--sequences", "4"};
  EXPECT_EQ(run(mpirun(2, args), scratch.folder()).status, 0);
  plant_in_checkpoint(scratch / "run/checkpoints/step-00000001", "parameters/ln_f.weight", 3,
                      std::numeric_limits<float>::infinity());
  const Result result = run(mpirun(2, args), scratch.folder());
  EXPECT_EQ(result.status, 1) << result.text();
  EXPECT_EQ(count(result.err, "the loss of run on tokens.bin is "), 1u) << result.text();
  EXPECT_EQ(count(result.out, "loss"), 0u) << result.text();
}

}  // namespace
}  // namespace megalith::e2e
