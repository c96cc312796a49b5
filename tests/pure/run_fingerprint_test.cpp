// A run that goes on is held against what its checkpoint was trained on; its folder holds what it needs and may move;
// and its ledger tells which samples it was trained on.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoints/hugging_face.h"
#include "checkpoints/manifest.h"
#include "checkpoints/reader.h"
#include "checkpoints/store.h"
#include "data/corpus/prepare.h"
#include "data/samples/indexed_dataset_writer.h"
#include "tests/data/scratch.h"
#include "tests/message_of.h"
#include "trainer/checkpointing/run_start.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/inference/inference.h"
#include "trainer/log/log.h"
#include "trainer/report/history.h"
#include "trainer/session/file_session.h"
#include "trainer/session/single_rank.h"
#include "trainer/train/audit.h"
#include "trainer/train/run.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;
using Overrides = std::vector<std::string>;

class RunFingerprintTest : public testing::Test {
 protected:
  RunFingerprintTest() {
    prepared("a", "some words of a text and more words of it\n", "train:262");
    scratch_.write("config.toml",
                   fmt::format("[model]\nlayers = 1\nhidden = 8\nheads = 1\ncontext = 16\n"
                               "[data]\ntrain = \"{}\"\n[batch]\nsequence_length = 8\nglobal_batch_size = 4\n"
                               "microbatch_size = 2\n[optimizer]\ndecay_steps = 100\n[train]\nsteps = 3\n"
                               "[run]\noutput = \"{}\"\n",
                               path("a/train.bin"), path("run")));
  }
  ~RunFingerprintTest() override { log_to_console(); }

  const SingleRank alone_;

  std::string path(const std::string& name) const { return scratch_.path(name); }
  void prepared(const std::string& folder, const std::string& line, const std::string& tokenizer) const {
    fs::remove_all(path(folder));
    std::string text;
    for (int i = 0; i < 200; i++) text += fmt::format("{} {}", i, line);
    prepare(
        {.corpus = {.texts = {scratch_.write(folder + ".txt", text)}}, .tokenizer = tokenizer, .out = path(folder)});
  }
  void train(const Overrides& overrides = {}) const {
    const FileSession session("", {}, 1);
    megalith::Run(load_run_config(path("config.toml"), overrides), session).train();
    log_to_console();
  }
  std::string refusal(const Overrides& overrides) const {
    return message_of([&] { train(overrides); });
  }
  std::string read(const std::string& name) const { return read_file(path(name)); }
  int64_t newest() const { return read_manifest(CheckpointStore(path("run/checkpoints")).usable().front()).step; }

  test::Scratch scratch_;
};

// As quickstart.sh advised: the data removed, other text prepared in its place, the command repeated.
TEST_F(RunFingerprintTest, AnotherTokenizerIsNeverResumedWith) {
  train();
  const std::string config = read("run/config.toml"), metrics = read("run/metrics.jsonl");
  prepared("a", "others, the vocabulary of which is another one\n", "train:262");
  for (const char* allow : {"checkpoint.allow_changes=false", "checkpoint.allow_changes=true"})
    EXPECT_SAYS(refusal({allow, "train.steps=6"}), "another tokenizer", "262 ids", "step-00000003",
                path("run") + "/tokenizer", "another run.output");
  EXPECT_EQ(read("run/config.toml"), config);
  EXPECT_EQ(read("run/metrics.jsonl"), metrics);
  EXPECT_EQ(newest(), 3);
}

TEST_F(RunFingerprintTest, AChangeNeedsLeave) {
  prepared("b", "other words of a text\n", "bytes");
  fs::remove_all(path("b/tokenizer"));
  fs::copy(path("a/tokenizer"), path("b/tokenizer"));  // another text of the same tokens
  train();
  struct Change {
    std::string key, there, here;
  };
  int64_t step = 3;
  for (const Change& change :
       {Change{"data.seed", "1", "2"}, Change{"batch.global_batch_size", "4", "2"},
        Change{"batch.sequence_length", "8", "4"}, Change{"train.seed", "1", "5"},
        Change{"optimizer.learning_rate", "0.0006", "0.001"}, Change{"optimizer.decay_steps", "100", "200"},
        Change{"data.shuffle", "true", "false"}, Change{"model.dropout", "0.0", "0.1"},
        Change{"data.isolate_documents", "no effect", "true"}}) {
    const std::string set = change.key + "=" + change.here;
    EXPECT_SAYS(refusal({set, "train.steps=9"}), change.key + ": " + change.there + " there, " + change.here + " here",
                "checkpoint.allow_changes = true", "another run.output");
    EXPECT_EQ(newest(), step);
    fs::remove_all(path("copy"));
    fs::copy(path("run"), path("copy"), fs::copy_options::recursive);
    train({set, "checkpoint.allow_changes=true", "train.steps=4", "run.output=" + path("copy")});
    EXPECT_SAYS(read("copy/log.txt"), "changed, as checkpoint.allow_changes permits: " + change.key);
  }
  const std::string all = refusal({"data.train=" + path("b/train.bin"), "data.seed=7", "train.steps=9"});
  EXPECT_SAYS(all, "data.train: " + path("a/train.bin") + " (", "there, " + path("b/train.bin") + " (",
              "data.seed: 1 there, 7 here");
  // A longer schedule of its own, or only more steps of the same.
  EXPECT_SAYS(refusal({"optimizer.decay_steps=0", "train.steps=9"}), "optimizer.decay_steps", "means train.steps");
}

// A run at its highest rate is extended, and cooled down from any of its checkpoints; the rates of the updates that it
// has made do not change by that.
TEST_F(RunFingerprintTest, AConstantRunIsExtendedAndCooledDownFromAnyCheckpoint) {
  const Overrides constant{"optimizer.decay=constant", "optimizer.warmup_steps=2", "checkpoint.every=1"};
  const auto with = [&](Overrides more) {
    more.insert(more.begin(), constant.begin(), constant.end());
    return more;
  };
  train(with({"train.steps=4"}));
  train(with({"train.steps=6", "optimizer.min_learning_rate=1e-5"}));
  const std::string from = path("run/checkpoints/step-00000004");
  const Overrides cooled = with({"optimizer.decay=sqrt", "optimizer.decay_begin=4", "optimizer.decay_steps=7",
                                 "train.steps=7", "checkpoint.resume=" + from, "run.output=" + path("cooled")});
  train(cooled);
  EXPECT_SAYS(read("cooled/log.txt"), "continues from " + from + " with another decay",
              "optimizer.decay: \"constant\" there, \"sqrt\" here");
  const History history = read_history(path("cooled"));
  ASSERT_EQ(history.origins.size(), 1u);
  EXPECT_EQ(history.origins[0].checkpoint, from);
  EXPECT_EQ(history.origins[0].step, 4);
  ASSERT_EQ(history.learning_rate.size(), 3u);
  EXPECT_DOUBLE_EQ(history.learning_rate[0], 6e-4);
  EXPECT_NEAR(history.learning_rate[1], 6e-4 * (1 - std::sqrt(1.0 / 3)), 1e-12);

  // What the updates made so far have felt is compared as before.
  const auto refused = [&](const Overrides& more) {
    Overrides all = cooled;
    all.insert(all.end(), more.begin(), more.end());
    return refusal(all);
  };
  const std::string other = "run.output=" + path("other");
  EXPECT_SAYS(refused({other, "optimizer.decay_begin=2"}), "optimizer.decay_begin", "checkpoint.allow_changes");
  EXPECT_SAYS(refused({other, "optimizer.learning_rate=1e-3"}), "optimizer.learning_rate");
  EXPECT_SAYS(refused({other, "optimizer.warmup_steps=3"}), "optimizer.warmup_steps");
  EXPECT_SAYS(refusal(with({"checkpoint.resume=" + path("cooled/checkpoints/step-00000007"), other, "train.steps=9"})),
              "optimizer.decay: \"sqrt\" there, \"constant\" here");
  // The step at which the decay begins still has the whole rate: its checkpoint goes on as well.
  train(with({"optimizer.decay=linear", "optimizer.decay_begin=3", "optimizer.decay_steps=6", "train.steps=6",
              "checkpoint.resume=" + from, other}));
}

// Another layout has the same fingerprint; so are the same tokens at another place.
TEST_F(RunFingerprintTest, LayoutsAndPlacesMayChange) {
  train();
  fs::rename(path("a"), path("moved"));
  train({"train.steps=4", "data.train=" + path("moved/train.bin"), "batch.microbatch_size=1",
         "memory.activation_checkpointing=each", "checkpoint.every=1", "parallel.sharding_strategy=no_shard"});
  EXPECT_EQ(newest(), 4);
}

// The tokenizer and all else: generate, evaluate and resume after `mv`, the data's own tokenizer gone.
TEST_F(RunFingerprintTest, ARunFolderMovesAsAWhole) {
  train();
  fs::copy(path("a/validation.bin"), path("held.bin"));
  fs::copy(path("a/validation.idx"), path("held.idx"));
  fs::rename(path("run"), path("elsewhere"));
  fs::rename(path("a/tokenizer"), path("a/gone"));
  const auto generated = [&](const std::string& folder) {
    const auto ignore = [](size_t, int64_t, std::string_view) {};
    return Inference(path(folder), "", {}, alone_).generate({"words"}, {.tokens = 4}, ignore).tokens;
  };
  EXPECT_GT(generated("elsewhere"), 0);
  EXPECT_GT(Inference(path("elsewhere"), "", {}, alone_).evaluate(path("held.bin"), 8, 2, [](double) {}).bytes, 0);
  const std::string output = "run.output=" + path("elsewhere");
  train({output, "train.steps=4"});
  {
    const FileSession session("", {}, 1);  // by the folder's own config as well
    megalith::Run(load_run_config(path("elsewhere/config.toml"), {output, "train.steps=5"}), session).train();
    log_to_console();
  }
  EXPECT_FALSE(fs::exists(path("run")));
  EXPECT_EQ(read_manifest(CheckpointStore(path("elsewhere/checkpoints")).usable().front()).step, 5);

  // A tokenizer of other content where it should be is not taken for it.
  fs::remove_all(path("elsewhere/tokenizer"));
  prepared("b", "x", "bytes");
  fs::copy(path("b/tokenizer"), path("elsewhere/tokenizer"));
  EXPECT_SAYS(message_of([&] { generated("elsewhere"); }), "--tokenizer");
}

TEST_F(RunFingerprintTest, ATokenizerInTheWayIsKept) {
  prepared("b", "x", "bytes");
  fs::create_directories(path("run"));
  fs::rename(path("b/tokenizer"), path("run/tokenizer"));
  train();
  EXPECT_TRUE(fs::exists(path("run/tokenizer.earlier-1/bytes.txt")));
  EXPECT_EQ(load_tokenizer(path("run/tokenizer"))->content(), load_tokenizer(path("a/tokenizer"))->content());
}

void edit_state(const std::string& checkpoint, const std::function<void(nlohmann::json&)>& edit) {
  Manifest manifest = read_manifest(checkpoint);
  edit(manifest.state);
  write_file(checkpoint + "/manifest.json", to_text(manifest), {.replace = true});
}

TEST_F(RunFingerprintTest, CheckpointsFromBeforeResume) {
  train();
  edit_state(path("run/checkpoints/step-00000003"), [&](nlohmann::json& state) {
    for (const char* key : {"course", "orders", "tokenizer_from_here"}) state.erase(key);
    state["tokenizer"] = path("a/tokenizer");
  });
  EXPECT_NO_THROW(Inference(path("run"), "", {}, alone_));
  train({"train.steps=4", "data.seed=2"});
  EXPECT_SAYS(read("run/log.txt"), "could not be compared");
  edit_state(path("run/checkpoints/step-00000004"), [](nlohmann::json& state) { state["course"].erase("settings"); });
  EXPECT_SAYS(refusal({"train.steps=5", "data.seed=2"}), "cannot read the run's fingerprint", "settings");
}

TEST_F(RunFingerprintTest, AStateThatCannotBeIsRefused) {
  train();
  const std::string checkpoint = path("run/checkpoints/step-00000003"),
                    good = read("run/checkpoints/step-00000003/manifest.json");
  const auto refusal_of = [&](const char* pointer, const nlohmann::json& value) {
    edit_state(checkpoint, [&](nlohmann::json& state) { state[nlohmann::json::json_pointer(pointer)] = value; });
    const std::string said = refusal({"train.steps=4"});
    write_file(checkpoint + "/manifest.json", good, {.replace = true});
    return said;
  };
  for (const char* key : {"sequences", "updates", "skipped", "skipped_in_a_row", "overflows", "good_steps"}) {
    EXPECT_SAYS(refusal_of(("/" + std::string(key)).c_str(), -1), checkpoint.c_str(), key, "is -1");
    EXPECT_SAYS(refusal_of(("/" + std::string(key)).c_str(), 1.5), checkpoint.c_str(), key, "not a whole number");
    EXPECT_SAYS(refusal_of(("/" + std::string(key)).c_str(), "1"), checkpoint.c_str(), key, "string");
  }
  EXPECT_SAYS(refusal_of("/loss_scale", -1), checkpoint.c_str(), "loss_scale");
  EXPECT_SAYS(refusal_of("/norms", {1, -1}), checkpoint.c_str(), "norms");
  EXPECT_SAYS(refusal_of("/model/layers", 100000000), checkpoint.c_str(), "layers = 100000000");
  EXPECT_SAYS(refusal_of("/model/heads", 0), checkpoint.c_str(), "heads = 0");
  EXPECT_SAYS(refusal_of("/model/hidden", 1e300), checkpoint.c_str(), "not a whole number");
}

// Keys of [model] that are not set are those of the weights; all that contradict them are told at once.
TEST_F(RunFingerprintTest, InitialWeightsBringTheirShape) {
  train();
  scratch_.write("tuned.toml",
                 fmt::format("[data]\ntrain = \"{}\"\n[batch]\nglobal_batch_size = 4\nmicrobatch_size = 2\n"
                             "[train]\nsteps = 1\n[checkpoint]\ninit_from = \"{}\"\n[run]\noutput = \"{}\"\n",
                             path("a/train.bin"), path("run"), path("tuned")));
  const auto load = [&](const Overrides& overrides) { return load_run_config(path("tuned.toml"), overrides); };
  const ModelConfig model = load({}).model;
  EXPECT_EQ(model, (ModelConfig{.layers = 1, .hidden = 8, .heads = 1, .vocab = 262, .context = 16, .dropout = 0}));
  EXPECT_EQ(load({}).batch.sequence_length, 16);
  EXPECT_EQ(load({"model.dropout=0.1", "model.layers=1", "model.vocab=0"}).model.vocab, 262);
  EXPECT_EQ(load({"model.dropout=0.1"}).model.dropout, 0.1);
  const std::string all = message_of([&] { load({"model.layers=2", "model.hidden=9", "model.heads=2"}); });
  EXPECT_SAYS(all, "model.layers = 2 here, 1 there", "model.hidden = 9 here, 8 there", "model.heads = 2 here, 1 there",
              "override `model.layers=2`", "Remove these keys");
  {
    const FileSession session("", {}, 1);
    megalith::Run(load({}), session).train();
    log_to_console();
  }
  EXPECT_SAYS(read("tuned/log.txt"), "weights from " + path("run"));
  // It goes on without the weights that it began from.
  fs::rename(path("run"), path("gone"));
  EXPECT_EQ(load({}).model, model);
  EXPECT_SAYS(message_of([&] { load({"run.output=" + path("new")}); }), "init_from", "is not a folder");
}

// Else a training goes on without the dropout that it was begun with.
TEST_F(RunFingerprintTest, InitialWeightsBringTheirDropout) {
  train({"model.dropout=0.25"});
  const auto load = [&](const Overrides& more) {
    Overrides all{"checkpoint.init_from=" + path("run"), "run.output=" + path("tuned"), "data.train=x"};
    all.insert(all.end(), more.begin(), more.end());
    return load_run_config(scratch_.write("tuned.toml", "[train]\nsteps = 1\n"), all);
  };
  EXPECT_EQ(load({}).model.dropout, 0.25);
  EXPECT_EQ(load({"model.dropout=0.5"}).model.dropout, 0.5);
  // A Hugging Face folder has a dropout for each place.
  CheckpointReader reader(CheckpointStore(path("run/checkpoints")).usable().front());
  const ModelConfig model = model_of(reader.manifest(), reader.folder());
  export_hugging_face(reader, model, stored_parameters(model), path("hf"));
  const auto with = [&](const char* key, double dropout) {
    auto config = nlohmann::json::parse(read("hf/config.json"));
    config[key] = dropout;
    scratch_.write("hf/config.json", config.dump());
  };
  const std::string from = "checkpoint.init_from=" + path("hf");
  EXPECT_EQ(load({from}).model.dropout, 0);
  with("embd_pdrop", 0.25);
  EXPECT_SAYS(message_of([&] { load({from}); }), "different dropouts", "set model.dropout");
  EXPECT_EQ(load({from, "model.dropout=0.1"}).model.dropout, 0.1);
  with("attn_pdrop", 0.25);
  with("resid_pdrop", 0.25);
  EXPECT_EQ(load({from}).model.dropout, 0.25);
}

// A second start of a run that has made its steps says so, and what would go on.
TEST_F(RunFingerprintTest, AFinishedRunHasNothingToDo) {
  train();
  const std::string log = read("run/log.txt");
  EXPECT_EQ(log.find("nothing to do"), std::string::npos) << log;
  train();
  const std::string again = read("run/log.txt").substr(log.size());
  EXPECT_SAYS(again, "nothing to do: all steps were already complete", "Raise train.steps to continue");
}

TEST_F(RunFingerprintTest, TheStartSaysWhatIsTrainedOn) {
  for (int i = 0; i < 2; i++) {
    IndexedDatasetWriter writer(path(fmt::format("c-{:05}", i)), 262);
    for (int document = 0; document < 3; document++) {
      writer.add(std::vector<int32_t>(50, 97));
      writer.end_document();
    }
    writer.finish();
  }
  train({fmt::format("data.train=[\"{} 3\", \"{} 1\"]", path("a/train.bin"), path("c")),
         "data.tokenizer=" + path("a/tokenizer"), "train.steps=10"});
  EXPECT_SAYS(
      read("run/log.txt"), "a/train.bin (75 % of samples): Megatron-LM's IndexedDataset, 1 file, 1 document, ",
      "c (25 % of samples): Megatron-LM's IndexedDataset, 2 files, 6 documents, 300 tokens; the run makes 0.27 epochs");
  // The list comes back from the run's own config.
  EXPECT_EQ(load_config(path("run/config.toml")).data.train, path("a/train.bin") + " 3\n" + path("c") + " 1\n");
}

TEST_F(RunFingerprintTest, SourcesOfTwoTokenizersDoNotBlend) {
  prepared("b", "text of bytes\n", "bytes");
  EXPECT_SAYS(refusal({fmt::format("data.train=[\"{} 3\", \"{} 1\"]", path("a/train.bin"), path("b/train.bin"))}),
              path("b/train.bin"), "differs from that in", "prepare all sources");
}

TEST_F(RunFingerprintTest, LeaveHoldsForOneStart) {
  train();
  train({"train.steps=4", "optimizer.learning_rate=0.001", "checkpoint.allow_changes=true"});
  EXPECT_FALSE(load_config(path("run/config.toml")).checkpoint.allow_changes);
  EXPECT_SAYS(refusal({"train.steps=5", "optimizer.learning_rate=0.002"}), "optimizer.learning_rate", "allow_changes");
}

TEST_F(RunFingerprintTest, WhatIsNotRefusedIsTold) {
  prepared("b", "other words of a text that is held out\n", "bytes");
  fs::remove_all(path("b/tokenizer"));
  fs::copy(path("a/tokenizer"), path("b/tokenizer"));
  const std::string a = "data.validation=" + path("a/train.bin"), b = "data.validation=" + path("b/train.bin");
  train({a, "data.allow_overlap=true"});
  train({a, "data.allow_overlap=true", "train.steps=4"});
  EXPECT_EQ(read("run/log.txt").find("changed: "), std::string::npos);
  train({b, "train.steps=5", "precision.compute=bf16", "precision.master=bf16", "precision.moments=bf16"});
  EXPECT_SAYS(read("run/log.txt"), "warning: changed: data.validation: ", "so far",
              "cannot be compared with earlier ones",
              "changed: precision.master: \"fp32\" so far, \"bf16\" from now on", "changed: precision.moments: ");
}

// Four starts, one of them with another seed, and many epochs.
TEST_F(RunFingerprintTest, TheLedgerOfARunInPieces) {
  const Overrides small{"batch.sequence_length=16", "checkpoint.allow_changes=true"};
  const auto with = [&](Overrides more) {
    more.insert(more.end(), small.begin(), small.end());
    return more;
  };
  train(with({"train.steps=2"}));
  train(with({"train.steps=200", "checkpoint.every=40"}));
  train(with({"train.steps=240"}));
  const Audit whole = audit_run(path("run"));
  EXPECT_EQ(whole.violation, "");
  std::string told;
  for (const std::string& line : whole.lines) told += line + "\n";
  EXPECT_SAYS(told, "samples [0, 960); steps 1 to 240 on 1 rank", "checkpoints agree", "whole epochs seen");
  train(with({"train.steps=300", "data.seed=2"}));
  const Audit changed = audit_run(path("run"));
  ASSERT_EQ(changed.violation, "");
  EXPECT_SAYS(changed.lines.front(), "from step 241 on, with sample 960");

  // What is planted in the metrics is named.
  const std::string metrics = read("run/metrics.jsonl");
  const auto planted = [&](const std::string& from, const std::string& to) {
    std::string text = metrics;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    scratch_.write("run/metrics.jsonl", text.replace(at, from.size(), to));
    return audit_run(path("run")).violation;
  };
  EXPECT_SAYS(planted("\"samples\":[40,44]", "\"samples\":[36,40]"), "step 11 ", "step 10 went to 40",
              "4 samples are repeated");
  EXPECT_SAYS(planted("\"samples\":[40,44]", "\"samples\":[41,44]"), "step 11 ", "1 samples are left out");
  EXPECT_SAYS(planted("{\"step\":12,", "{\"step\":11,"), "step 11 comes again");
  EXPECT_SAYS(planted("{\"step\":12,", "{\"step\":13,"), "steps 12 to 12 are missing");
  EXPECT_SAYS(planted("\"samples\":[0,4]", "\"samples\":[2,4]"), "step 1 begins with sample 2");
  scratch_.write("run/metrics.jsonl", metrics);
  edit_state(path("run/checkpoints/step-00000080"), [](nlohmann::json& state) { state["sequences"] = 316; });
  EXPECT_SAYS(audit_run(path("run")).violation, "step-00000080", "316", "went to 320");
}

}  // namespace
}  // namespace megalith
