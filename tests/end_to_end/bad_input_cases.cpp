#include "tests/end_to_end/bad_input_cases.h"

#include <filesystem>

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

Args train_with(const Args& overrides) {
  Args args{"train", "config.toml"};
  args.insert(args.end(), overrides.begin(), overrides.end());
  return args;
}
const std::string new_run = "run.output=fresh";

}  // namespace

void prepare_bad_inputs(const Scratch& scratch) {
  const std::string tiny = reference("tiny"), tokens = read_file(tiny + "/tokens.bin");
  write_reference_config(scratch / "config.toml", tiny, "");
  train(scratch.folder(), 1, {"train.steps=2", "checkpoint.every=1"});
  write_file(scratch / "empty.bin", "");
  write_file(scratch / "odd.bin", tokens.substr(0, 1001));
  write_file(scratch / "short.bin", tokens.substr(0, 20));
  write_file(scratch / "plain.txt", "a text\n");
  write_file(scratch / "empty.txt", "");
  std::string llmc(1024, '\0');
  const int32_t header[] = {20240520, 1, 5000};
  llmc.replace(0, sizeof header, reinterpret_cast<const char*>(header), sizeof header);
  write_file(scratch / "llmc.bin", llmc + tokens.substr(0, 400));
  write_file(scratch / "pair/train.bin", tokens);
  write_file(scratch / "pair/train.idx", std::string("MMIDIDX\0\0", 9) + std::string(30, '\x01'));
  fs::create_directory(scratch / "no_tokenizer");
  fs::create_directory(scratch / "damaged");
  fs::copy(scratch / "run/checkpoints/step-00000002", scratch / "damaged/step-00000002", fs::copy_options::recursive);
  flip_byte(scratch / "damaged/step-00000002/manifest.json", 500);
  fs::copy(tiny, scratch / "hf_damaged", fs::copy_options::recursive);
  fs::permissions(scratch / "hf_damaged/model.safetensors", fs::perms::owner_all);
  fs::resize_file(scratch / "hf_damaged/model.safetensors", 100000);
  const Result prepared =
      run(megalith({"prepare", "--text", "plain.txt", "--tokenizer", "bytes", "--out", "data"}), scratch.folder());
  ASSERT_EQ(prepared.status, 0) << prepared.text();
}

const std::vector<BadInputCase>& bad_input_cases() {
  static const std::vector<BadInputCase> all = {
      // The configuration.
      {"unknown_key", 2, train_with({new_run, "modle.layers=2"}), {"modle.layers", "did you mean", "model.layers"}},
      {"unknown_key_in_file",
       2,
       train_with({new_run}),
       {"unknown_key_in_file.toml:3", "model.hiden", "did you mean", "model.hidden"},
       "[model]\nlayers = 2\nhiden = 3\n"},
      {"wrong_type",
       2,
       train_with({new_run, "batch.global_batch_size=many"}),
       {"batch.global_batch_size", "\"many\"", "expected an integer", "sequences"}},
      {"wrong_type_in_file",
       2,
       train_with({}),
       {"wrong_type_in_file.toml:2", "model.layers", "2.5", "expected an integer"},
       "[model]\nlayers = 2.5\n"},
      {"out_of_range",
       2,
       train_with({new_run, "model.dropout=1.5"}),
       {"model.dropout = 1.5", "out of range", "0 to below 1"}},
      {"negative", 2, train_with({new_run, "train.steps=-4"}), {"train.steps = -4", "out of range", "1 to"}},
      {"not_toml", 2, train_with({}), {"not_toml.toml:2", "not TOML"}, "[model]\nlayers = = 2\n"},
      {"not_a_choice",
       2,
       train_with({new_run, "parallel.sharding_strategy=full"}),
       {"parallel.sharding_strategy", "\"full\"", "full_shard", "no_shard"}},
      {"not_available_yet",
       2,
       train_with({new_run, "memory.offload_optimizer=true"}),
       {"memory.offload_optimizer = true", "not available yet", "false is"}},
      {"no_config", 2, {"train", "absent.toml"}, {"absent.toml", "No such file", "is the path right"}},
      {"config_is_a_folder", 2, {"train", "run"}, {"configuration run", "is a folder", "TOML"}},
      {"heads_do_not_divide",
       2,
       train_with({new_run, "model.heads=5"}),
       {"model.heads = 5", "does not divide", "model.hidden = 64", "these do", "4 8"}},
      {"batch_not_divisible",
       2,
       train_with({new_run, "batch.microbatch_size=3"}),
       {"batch.microbatch_size = 3", "does not divide", "batch.global_batch_size = 8", "1 2 4 8"}},
      {"sequence_beyond_context",
       2,
       train_with({new_run, "batch.sequence_length=33"}),
       {"batch.sequence_length = 33", "model.context = 32", "shorten"}},
      {"degree_does_not_divide",
       2,
       train_with({new_run, "parallel.sharded_data_parallel_degree=3"}),
       {"does not divide the 2 data-parallel ranks", "parallel.sharded_data_parallel_degree = 3",
        "would fit: 3 or 6 ranks", "= 1 or 2"}},
      {"warmup_beyond_decay",
       2,
       train_with({new_run, "optimizer.warmup_steps=100"}),
       {"optimizer.warmup_steps = 100", "optimizer.decay_steps = 8", "lower"}},
      {"no_validation",
       2,
       train_with({new_run, "train.evaluate_every=2"}),
       {"train.evaluate_every = 2", "data.validation", "or set 0"}},
      {"cuda", 2, train_with({new_run, "run.device=cuda"}), {"run.device = cuda", "no CUDA", "run.device=cpu"}},
      {"memory",
       2,
       train_with({new_run, "model.hidden=16384", "model.layers=200"}),
       {"needs", "GiB", "each of 2 ranks", "optimizer", "which has", "more machines"}},

      // The tokens.
      {"no_data", 2, train_with({new_run, "data.train="}), {"data.train is empty", "megalith prepare"}},
      {"missing_tokens",
       2,
       train_with({new_run, "data.train=absent.bin"}),
       {"absent.bin", "No such file", "check the path"}},
      {"tokens_are_a_folder", 2, train_with({new_run, "data.train=run"}), {"run is not a plain file"}},
      {"empty_tokens", 2, train_with({new_run, "data.train=empty.bin"}), {"empty.bin", "0 bytes"}},
      {"truncated_raw", 2, train_with({new_run, "data.train=odd.bin"}), {"odd.bin", "1001 bytes", "truncated"}},
      {"truncated_llmc", 2, train_with({new_run, "data.train=llmc.bin"}), {"llmc.bin", "5000"}},
      {"foreign_idx", 2, train_with({new_run, "data.train=pair/train.bin"}), {"train.idx"}},
      {"index_as_tokens",
       2,
       train_with({new_run, "data.train=data/train.idx"}),
       {"data/train.idx is the index", "data/train.bin"}},
      {"raw_tokens_for_a_large_vocabulary",
       2,
       train_with({new_run, "model.vocab=70000"}),
       {"data.train = ", "tokens.bin has no .idx", "uint16", "model.vocab = 70000"}},
      {"too_few_tokens",
       2,
       train_with({new_run, "data.train=short.bin"}),
       {"short.bin", "10 tokens", "33", "9 or less"}},
      {"too_few_validation_tokens", 2, train_with({new_run, "data.validation=short.bin"}), {"short.bin", "10 tokens"}},
      {"token_beyond_vocabulary",
       2,
       train_with({new_run, "model.vocab=256"}),
       {"data.train", "tokens.bin", "token 256", "vocabulary of 256", "at least 257"}},
      {"validation_beyond_vocabulary",
       2,
       train_with({new_run, "data.validation=" + reference("small") + "/tokens.bin"}),
       {"data.validation", "token 999", "vocabulary of 257", "at least 1000"}},
      {"no_vocabulary",
       2,
       train_with({new_run, "model.vocab=0"}),
       {"model.vocab = 0", "data.tokenizer", "set one of them"}},
      {"tokenizer_larger_than_vocabulary",
       2,
       train_with({new_run, "model.vocab=200", "data.tokenizer=data/tokenizer"}),
       {"data/tokenizer", "257 ids", "model.vocab = 200", "raise"}},
      {"no_such_tokenizer", 2, train_with({new_run, "data.tokenizer=absent"}), {"absent", "folder"}},
      {"no_tokenizer_in_folder",
       2,
       train_with({new_run, "data.tokenizer=no_tokenizer"}),
       {"no_tokenizer", "vocab.json"}},
      {"tokenizer_malformed", 2, train_with({new_run, "data.tokenizer=train:4k"}), {"\"train:4k\"", "258 to 16777216"}},
      {"tokenizer_of_other_data",
       2,
       train_with({new_run, "model.vocab=0", "data.train=data/train.bin", "data.tokenizer=train:9999"}),
       {"data.tokenizer = train:9999", "data/tokenizer", "257 ids", "megalith prepare"}},
      {"tokenizer_never_prepared",
       2,
       train_with({new_run, "model.vocab=0", "data.tokenizer=train:4096"}),
       {"data.tokenizer = train:4096", "tokenizer/", "megalith prepare"}},

      // Output and checkpoints.
      {"output_is_a_file", 2, train_with({"run.output=plain.txt"}), {"run.output = plain.txt", "run.output=DIR"}},
      {"output_below_a_file", 2, train_with({"run.output=plain.txt/run"}), {"plain.txt/run", "run.output=DIR"}},
      {"output_cannot_be_made", 2, train_with({"run.output=/proc/run"}), {"/proc/run", "run.output=DIR"}},
      {"resume_never",
       2,
       train_with({"checkpoint.resume=never"}),
       {"checkpoint.resume = never", "2 checkpoints", "step-00000002", "resume = auto"}},
      {"checkpoint_of_another_model",
       2,
       train_with({"model.layers=3"}),
       {"step-00000002", "another model", "model.layers is 2 there and 3", "run.output"}},
      {"checkpoint_of_another_vocabulary",
       2,
       train_with({"model.vocab=300"}),
       {"model.vocab is 257 there and 300", "run.output"}},
      {"resume_from_another_model",
       2,
       train_with({new_run, "checkpoint.resume=run/checkpoints/step-00000002", "model.heads=8"}),
       {"run/checkpoints/step-00000002", "model.heads is 4 there and 8"}},
      {"resume_from_nowhere",
       2,
       train_with({new_run, "checkpoint.resume=run/checkpoints/step-00000009"}),
       {"run/checkpoints/step-00000009", "not a folder"}},
      {"resume_before_newer_ones",
       2,
       train_with({"checkpoint.resume=run/checkpoints/step-00000001"}),
       {"step-00000001", "step 1", "step 2", "run.output", "resume = auto"}},
      {"resume_from_damaged",
       2,
       train_with({new_run, "checkpoint.resume=damaged/step-00000002"}),
       {"damaged/step-00000002", "manifest.json", "checksum"}},
      {"init_from_another_model",
       2,
       train_with({new_run, "checkpoint.init_from=" + reference("small")}),
       {"checkpoint.init_from", "another model", "model.layers is 4 there and 2", "use the model"}},
      {"init_from_nowhere",
       2,
       train_with({new_run, "checkpoint.init_from=absent"}),
       {"checkpoint.init_from = absent", "name a checkpoint", "Hugging Face"}},
      {"init_from_damaged",
       2,
       train_with({new_run, "checkpoint.init_from=hf_damaged"}),
       {"hf_damaged", "model.safetensors"}},

      // The other commands.
      {"no_command", 0, {}, {"no command", "--help"}},
      {"no_arguments", 2, {"train"}, {"config is required", "--help"}},
      {"plan_without_ranks", 0, {"plan", "config.toml"}, {"--ranks is missing", "hardware.profile"}},
      {"plan_without_profile", 0, {"plan", "config.toml", "hardware.profile=no/such.toml"}, {"no/such.toml", "path"}},
      {"plan_no_ranks", 0, {"plan", "config.toml", "--ranks", "0"}, {"--ranks 0", "at least one"}},
      {"prepare_onto_existing",
       0,
       {"prepare", "--text", "plain.txt", "--tokenizer", "bytes", "--out", "data"},
       {"data/", "exists", "another folder"}},
      {"prepare_onto_existing_under_mpirun",
       2,
       {"prepare", "--text", "plain.txt", "--tokenizer", "bytes", "--out", "data"},
       {"data/", "exists", "another folder"}},
      {"prepare_unknown_tokenizer",
       0,
       {"prepare", "--text", "plain.txt", "--tokenizer", "gpt5", "--out", "fresh"},
       {"gpt5", "bytes", "train:VOCAB", "vocab.json"}},
      {"prepare_tiny_vocabulary",
       0,
       {"prepare", "--text", "plain.txt", "--tokenizer", "train:20", "--out", "fresh"},
       {"train:20", "258"}},
      {"prepare_too_large_vocabulary",
       0,
       {"prepare", "--text", "plain.txt", "--tokenizer", "train:9000", "--out", "fresh"},
       {"9000", "more text"}},
      {"prepare_missing_text",
       0,
       {"prepare", "--text", "absent.txt", "--tokenizer", "bytes", "--out", "fresh"},
       {"absent.txt", "No such file"}},
      {"prepare_empty_text",
       0,
       {"prepare", "--text", "empty.txt", "--tokenizer", "bytes", "--out", "fresh"},
       {"empty.txt", "0 bytes"}},
      {"prepare_into_a_file",
       0,
       {"prepare", "--text", "plain.txt", "--tokenizer", "bytes", "--out", "plain.txt/data"},
       {"plain.txt/data"}},
      {"prepare_all_held_out",
       0,
       {"prepare", "--text", "plain.txt", "--tokenizer", "bytes", "--out", "fresh", "--validation", "1"},
       {"validation fraction of 1", "below 1"}},
      {"generate_without_tokenizer",
       0,
       {"generate", "--checkpoint", "run", "--prompt", "a"},
       {"step-00000002", "no tokenizer", "--tokenizer"}},
      {"generate_from_nothing",
       0,
       {"generate", "--checkpoint", "absent", "--prompt", "a"},
       {"absent", "no such folder"}},
      {"generate_from_no_checkpoint",
       0,
       {"generate", "--checkpoint", "data", "--prompt", "a"},
       {"data", "no complete checkpoint", "step-*"}},
      {"generate_hot", 0, {"generate", "--checkpoint", "run", "--temperature", "-1"}, {"--temperature", "-1"}},
      {"evaluate_missing_data",
       0,
       {"evaluate", "--checkpoint", "run", "--data", "absent.bin"},
       {"absent.bin", "No such file"}},
      {"evaluate_other_vocabulary",
       0,
       {"evaluate", "--checkpoint", "run", "--data", reference("small") + "/tokens.bin"},
       {"token 999", "vocabulary of 257"}},
      {"evaluate_beyond_context",
       0,
       {"evaluate", "--checkpoint", "run", "--data", reference("tiny") + "/tokens.bin", "--sequence-length", "64"},
       {"64 tokens", "context is 32"}},
      {"evaluate_negative_length",
       0,
       {"evaluate", "--checkpoint", "run", "--data", reference("tiny") + "/tokens.bin", "--sequence-length", "-5"},
       {"--sequence-length", "-5"}},
      {"inspect_no_checkpoint", 0, {"checkpoint", "inspect", "data"}, {"data", "no complete checkpoint", "run folder"}},
      {"export_onto_existing",
       0,
       {"checkpoint", "export", "run/checkpoints/step-00000002", "--out", "hf_damaged"},
       {"hf_damaged", "exists already", "another folder"}},
      {"export_damaged",
       0,
       {"checkpoint", "export", "damaged/step-00000002", "--out", "fresh"},
       {"damaged/step-00000002/manifest.json", "checksum"}},
  };
  return all;
}

}  // namespace megalith::e2e
