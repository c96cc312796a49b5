// `megalith verify` as a user runs it: layouts that agree, planted faults that are named, wrong input that is refused.
#include <filesystem>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

class Verify : public testing::Test {
 protected:
  // Odd sizes, dropout, and a batch whose last microbatch is not full on every number of ranks.
  void SetUp() override {
    write_file(scratch / "config.toml",
               "[model]\nlayers = 3\nhidden = 36\nheads = 6\nvocab = 61\ncontext = 12\ndropout = 0.1\n"
               "[batch]\nglobal_batch_size = 6\nmicrobatch_size = 1\n[optimizer]\nlearning_rate = 1e-3\n");
  }

  // One rank is run alone. Nothing may be written, whatever happens.
  Result verify(int ranks, const Args& args) {
    Args all{"verify", "config.toml"};
    all.insert(all.end(), args.begin(), args.end());
    const auto before = snapshot(scratch.folder());
    const Result result = run(ranks == 1 ? megalith(all) : mpirun(ranks, all), scratch.folder());
    EXPECT_TRUE(snapshot(scratch.folder()) == before) << "something was written";
    return result;
  }

  void expect_agreement(int ranks, const Args& args) {
    const Result result = verify(ranks, args);
    EXPECT_EQ(result.status, 0) << result.text();
    EXPECT_NE(result.out.find("no tensor exceeds its tolerance: 313 comparisons in 3 steps; the nearest is "),
              std::string::npos)
        << result.text();
    EXPECT_EQ(result.out.find("EXCEEDS"), std::string::npos) << result.text();
  }

  void expect_equal(int ranks, const Args& args) {
    const Result result = verify(ranks, args);
    EXPECT_EQ(result.status, 0) << result.text();
    EXPECT_NE(result.out.find("all are equal: 313 comparisons in 3 steps\n"), std::string::npos) << result.text();
  }

  // The fault is found first at this step and tensor, in the middle.
  void expect_named(int ranks, const Args& layout, const std::string& inject, const std::string& found) {
    Args args{"--inject", inject};
    args.insert(args.end(), layout.begin(), layout.end());
    const Result result = verify(ranks, args);
    EXPECT_EQ(result.status, 1) << result.text();
    EXPECT_NE(result.out.find("\nfirst difference beyond its tolerance: " + found + ": "), std::string::npos)
        << "no " << found << ": " << result.text();
  }

  void expect_refusal(int ranks, const Args& args, const std::string& words) {
    const Result result = verify(ranks, args);
    EXPECT_EQ(result.status, 1) << result.text();
    EXPECT_NE(result.err.find(words), std::string::npos) << "\"" << words << "\" is missing: " << result.text();
    EXPECT_EQ(result.out, "");
  }

  const Scratch scratch;
};

const std::string tensor = "parallel.tensor_parallel_degree=", pipeline = "parallel.pipeline_parallel_degree=",
                  sequence = "parallel.sequence_parallel=true", strategy = "parallel.sharding_strategy=";

TEST_F(Verify, what_only_moves_data_is_equal) {
  expect_equal(1, {"--against", "memory.activation_checkpointing=each"});
  expect_equal(2, {"--against", strategy + "shard_grad_op"});
  expect_equal(2, {tensor + "2", "--against", "memory.activation_checkpointing=each"});
}

TEST_F(Verify, layouts_agree) {
  expect_agreement(2, {"--against", tensor + "2"});
  expect_agreement(3, {"--against", tensor + "3", sequence});
  expect_agreement(2, {pipeline + "2", "--against", pipeline + "1"});
  expect_agreement(4, {strategy + "no_shard", "--against", strategy + "full_shard", tensor + "2", pipeline + "2"});
  expect_agreement(4, {tensor + "2", "--against", sequence, strategy + "shard_optimizer"});
  expect_agreement(4, {pipeline + "2", "--against", pipeline + "1", "batch.microbatch_size=2"});
}

TEST_F(Verify, bf16_agrees_with_fp32_and_with_itself) {
  expect_agreement(2, {"--against", "precision.compute=bf16"});
  expect_agreement(2, {"precision.compute=bf16", "--against", tensor + "2"});
}

TEST_F(Verify, what_is_frozen_has_no_gradient_to_compare) {
  for (const Args& frozen : std::vector<Args>{{"train.freeze=embeddings"}, {"adapter.rank=4", "adapter.dropout=0.1"}}) {
    Args args = frozen;
    args.insert(args.end(), {"--against", tensor + "2"});
    const Result result = verify(2, args);
    EXPECT_EQ(result.status, 0) << result.text();
    EXPECT_EQ(result.out.find("  d wte.weight "), std::string::npos) << result.text();
  }
}

TEST_F(Verify, an_activation_at_fault_is_named) {
  const Args layout{"--against", tensor + "2", pipeline + "2"};
  const Args alone{"--against", "memory.lm_head_chunks=3"};
  expect_named(4, layout, "h.1", "step 1, h.1 at row 36, column 0");
  expect_named(4, layout, "d h.0", "step 1, d h.0 at row 36, column 0");
  expect_named(2, {"--against", tensor + "2", sequence}, "d h.2", "step 1, d h.2 at row 36, column 0");
  expect_named(2, {"precision.compute=bf16", "--against", strategy + "no_shard"}, "h.2",
               "step 1, h.2 at row 36, column 0");
  expect_named(1, alone, "embedding", "step 1, embedding at row 36, column 0");
  expect_named(1, alone, "2:h.0", "step 2, h.0 at row 36, column 0");
  expect_named(1, alone, "loss", "step 1, loss at row 36");
}

TEST_F(Verify, a_parameter_at_fault_is_named) {
  const Args layout{"--against", tensor + "2", sequence}, alone{"--against", "memory.lm_head_chunks=3"};
  expect_named(2, layout, "h.1.attn.c_attn.weight", "step 0, h.1.attn.c_attn.weight at row 54, column 0");
  expect_named(2, layout, "d h.1.mlp.c_proj.weight", "step 1, d h.1.mlp.c_proj.weight at row 18, column 0");
  expect_named(1, alone, "3:d wte.weight", "step 3, d wte.weight at row 30, column 18");
  expect_named(1, alone, "2:h.2.ln_2.bias", "step 2, h.2.ln_2.bias at element 18");
  expect_named(1, alone, "gradient norm", "step 1, gradient norm at element 0");
}

// The tables take part in the first and the last stage, which hold the same.
TEST_F(Verify, a_table_on_two_stages_is_named) {
  expect_named(2, {"--against", pipeline + "2"}, "wte.weight", "step 0, wte.weight at row 30, column 18");
}

TEST_F(Verify, the_tolerance_is_a_factor) {
  const Result result = verify(2, {"--tolerance", "0", "--against", tensor + "2"});
  EXPECT_EQ(result.status, 1) << result.text();
  EXPECT_NE(result.out.find("first difference beyond its tolerance: step 1, h.0 at row "), std::string::npos)
      << result.text();
}

TEST_F(Verify, all_prints_every_tensor_of_every_step) {
  const auto count = [](const std::string& text, const std::string& what) {
    size_t n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) n++;
    return n;
  };
  for (const Args& args : {Args{}, Args{"--all"}}) {
    Args with = args;
    with.insert(with.end(), {"--steps", "2", "--against", "memory.lm_head_chunks=3"});
    const Result result = verify(1, with);
    EXPECT_EQ(result.status, 0) << result.text();
    EXPECT_EQ(count(result.out, "d h.1.ln_1.bias "), args.empty() ? 1u : 2u) << result.text();
  }
}

TEST_F(Verify, takes_the_users_batch_and_weights) {
  SKIP_WITHOUT_REFERENCE();
  write_reference_config(scratch / "config.toml", reference("tiny"), reference("tiny"));
  const Args planted{"--inject", "wte.weight", "--against", "memory.lm_head_chunks=3"};
  const Result theirs = verify(1, planted);
  EXPECT_NE(theirs.out.find("from " + reference("tiny") + "/tokens.bin"), std::string::npos) << theirs.text();
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  const Result fresh = verify(1, planted);
  for (const Result& result : {theirs, fresh}) EXPECT_EQ(result.status, 1) << result.text();
  // The verdict prints the weight.
  EXPECT_NE(theirs.out.substr(theirs.out.find("\nfirst difference")),
            fresh.out.substr(fresh.out.find("\nfirst difference")));

  write_reference_config(scratch / "config.toml", reference("tiny"), reference("tiny"));
  const Result agreed = verify(2, {"--against", tensor + "2"});
  EXPECT_EQ(agreed.status, 0) << agreed.text();
}

TEST_F(Verify, wrong_input_is_refused) {
  expect_refusal(1, {}, "--against is required (section.key=value");
  expect_refusal(1, {"--against", "parallel.tensor_degree=2"}, "unknown key `parallel.tensor_degree`");
  expect_refusal(1, {"--against", tensor + "5"}, "does not divide model.heads = 6; these do: 1 2 3 6");
  expect_refusal(2, {"--against", tensor + "3"}, "does not divide the 2 ranks");
  expect_refusal(1, {"--against", "model.layers=4"},
                 "--against model.layers=4: model.layers changes the results of a step, not only their computation");
  expect_refusal(1, {"--against", "batch.global_batch_size=4"},
                 "changes the results of a step, not only their computation");
  expect_refusal(1, {"--steps", "0", "--against", "memory.lm_head_chunks=3"}, "--steps");
  expect_refusal(1, {"--inject", "h.7", "--against", "memory.lm_head_chunks=3"}, "--inject h.7: no tensor of step 1");
  expect_refusal(1, {"--inject", "x:h.1", "--against", "memory.lm_head_chunks=3"}, "a number from 0 to 3");
  expect_refusal(1, {"data.train=absent.bin", "--against", "memory.lm_head_chunks=3"}, "absent.bin");
  expect_refusal(1, {"checkpoint.init_from=absent", "--against", "memory.lm_head_chunks=3"}, "absent is not a folder");
  expect_refusal(1, {"model.vocab=0", "--against", "memory.lm_head_chunks=3"}, "model.vocab = 0");
}

// Ranks with other options would wait for one another for ever.
TEST_F(Verify, other_options_on_one_rank_are_refused) {
  std::vector<Part> parts;
  for (const char* steps : {"2", "3"})
    parts.push_back({1, {"verify", "config.toml", "--against", "memory.lm_head_chunks=3", "--steps", steps}});
  const Result result = run(mpirun(parts), scratch.folder());
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status, 1) << result.text();
  EXPECT_NE(result.err.find("\n  --steps: 3; on rank 0: 2"), std::string::npos) << result.text();
}

}  // namespace
}  // namespace megalith::e2e
