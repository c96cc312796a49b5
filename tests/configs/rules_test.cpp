// The rules between keys: one case breaks one rule, and its message names the key, the numbers and the way out.
#include "configs/config.h"
#include "configs/field_table.h"
#include "tests/message_of.h"

namespace megalith {
namespace {

std::string refusal(const std::vector<std::string>& overrides) {
  return message_of([&] { parse_config("", "run.toml", overrides); });
}

void expect_refusal(const std::vector<std::string>& overrides, const std::string& message) {
  EXPECT_EQ(refusal(overrides), fmt::format("override `{}`: {}", overrides.front(), message));
}

bool allowed(const std::vector<std::string>& overrides) {
  const std::optional<std::string> error = error_of([&] { parse_config("", "run.toml", overrides); });
  EXPECT_FALSE(error) << *error;
  return !error;
}

TEST(Rules, DefaultsAreValid) {
  EXPECT_NO_THROW(validate(resolve(Config{})));
  EXPECT_TRUE(is_valid(resolve(Config{})));
}

TEST(Rules, HeadsDivideHidden) {
  expect_refusal({"model.heads=7"}, "model.heads = 7 does not divide model.hidden = 768; these do: 1 2 3 4 6 8 12 16");
  EXPECT_NO_THROW(parse_config("", "run.toml", {"model.heads=16"}));
}

TEST(Rules, ProductsInEightBits) {
  const std::string fp8 = "precision.products=fp8", bf16 = "precision.compute=bf16";
  EXPECT_TRUE(allowed({fp8, bf16, "precision.first_layers_in_bf16=1", "precision.last_layers_in_bf16=2"}));
  EXPECT_TRUE(allowed({fp8, "precision.compute=fp32", "run.device=cpu"}));
  expect_refusal({fp8},
                 "precision.products = \"fp8\" needs precision.compute = \"bf16\", but it is \"fp32\"; set bf16 there, "
                 "or \"compute\" here");
  expect_refusal(
      {"precision.first_layers_in_bf16=1"},
      "precision.first_layers_in_bf16 = 1 has no effect with precision.products = \"compute\"; set 0 here, or "
      "\"fp8\" there");
  expect_refusal(
      {fp8, bf16, "precision.first_layers_in_bf16=6", "precision.last_layers_in_bf16=6"},
      "precision.products = \"fp8\" is of no layer: precision.first_layers_in_bf16 and last_layers_in_bf16 are "
      "12 of model.layers = 12 together; lower them, or set \"compute\" here");
  expect_refusal({fp8, bf16, "batch.sequence_length=1001"},
                 "precision.products = \"fp8\" needs sizes that are multiples of 16, but the number of tokens of a "
                 "microbatch is 1001; change it, or set \"compute\" here");
}

TEST(Rules, SequenceFitsTheContext) {
  expect_refusal({"batch.sequence_length=1025"},
                 "batch.sequence_length = 1025 is beyond model.context = 1024; shorten the one or raise the other");
  EXPECT_NO_THROW(parse_config("", "run.toml", {"batch.sequence_length=1024"}));
}

TEST(Rules, MicrobatchDividesTheBatch) {
  expect_refusal({"batch.microbatch_size=5", "batch.global_batch_size=12"},
                 "batch.microbatch_size = 5 does not divide batch.global_batch_size = 12; these do: 1 2 3 4 6 12");
}

// Each key that is a text is a path or has no use for one: s3://bucket would be a folder of that name.
TEST(Rules, NoKeyTakesAnAddressForAPath) {
  int tried = 0;
  for (const Field& field : field_table()) {
    if (field.kind != Key::Kind::text) continue;
    tried++;
    for (const char* name : {"s3://bucket/run", "gs://bucket/run", "hdfs://host/run", "https://host/run"})
      EXPECT_NE(refusal({field.name() + "=" + name}).find("is not a path, and "), std::string::npos) << field.name();
  }
  EXPECT_GE(tried, 8);
  expect_refusal({"checkpoint.directory=s3://bucket/run"},
                 "checkpoint.directory = \"s3://bucket/run\" is not a path, and s3:// is not supported; give a "
                 "path, such as the folder where it is mounted");
  EXPECT_NE(refusal({"data.train=[\"a.bin 0.5\", \"s3://b/c.bin 0.5\"]"}).find("s3:// is not supported"),
            std::string::npos);
  EXPECT_NE(refusal({"run.output=file:///runs/a"}).find("write it without file://"), std::string::npos);
  allowed({"run.output=runs/a://b", "checkpoint.directory=1://x", "data.train=/a:/b"});
}

// Whoever plans would count in numbers that do not fit 64 bits.
TEST(Rules, AMicrobatchFitsSomeMachine) {
  EXPECT_NE(refusal({"batch.microbatch_size=1000000000", "batch.global_batch_size=1000000000"})
                .find("batch.microbatch_size = 1000000000 x batch.sequence_length = 1024 makes tensors of "),
            std::string::npos);
  EXPECT_NE(refusal({"model.vocab=2147483647", "batch.microbatch_size=1000", "batch.global_batch_size=1000"}), "");
  EXPECT_NE(refusal({"model.context=16777216", "model.heads=768"}), "");
  std::vector<std::string> twelve{"parallel.prescaled_batch=false", "batch.microbatch_size=10000000",
                                  "batch.global_batch_size=120000000", "parallel.tensor_parallel_degree=12"};
  EXPECT_NE(refusal(twelve).find("makes tensors of 1.5e+15 elements"), std::string::npos) << "of 12 ranks' sequences";
  twelve[0] = "parallel.prescaled_batch=true";
  allowed(twelve);
  allowed({"model.context=1048576", "model.heads=96", "model.hidden=12288", "model.vocab=65536"});
}

TEST(Rules, AShapeFromElsewhereIsInTheRangesOfItsKeys) {
  const ModelConfig good{.layers = 2, .hidden = 8, .heads = 2, .vocab = 257, .context = 32};
  check_shape(good, "f");
  const auto refusal_of = [&](int64_t ModelConfig::*member, int64_t value) {
    ModelConfig model = good;
    model.*member = value;
    return message_of([&] { check_shape(model, "f"); });
  };
  EXPECT_EQ(refusal_of(&ModelConfig::layers, 100000000),
            "f: the model has layers = 100000000, which is out of range, expected an integer (layers, 1 to 10000)");
  EXPECT_NE(refusal_of(&ModelConfig::heads, 0), "");
  EXPECT_NE(refusal_of(&ModelConfig::heads, 3), "");
  EXPECT_NE(refusal_of(&ModelConfig::hidden, -8), "");
  EXPECT_NE(refusal_of(&ModelConfig::vocab, 0), "");
}

TEST(Rules, LearningRate) {
  expect_refusal({"optimizer.min_learning_rate=0.1", "optimizer.learning_rate=0.01"},
                 "optimizer.min_learning_rate = 0.1 is above optimizer.learning_rate = 0.01; the decay only goes down");
  expect_refusal({"optimizer.warmup_steps=11", "optimizer.decay_steps=10"},
                 "optimizer.warmup_steps = 11 is beyond optimizer.decay_steps = 10, the end of the decay; lower "
                 "the one or raise the other");
  EXPECT_NO_THROW(parse_config("", "run.toml", {"optimizer.warmup_steps=10", "optimizer.decay_steps=10"}));
  EXPECT_NO_THROW(parse_config("", "run.toml",
                               {"optimizer.warmup_steps=11", "optimizer.decay_steps=10", "optimizer.decay=constant"}));
}

TEST(Rules, EpsilonIsOneInF32) {
  for (const char* text : {"1e-50", "1e-45", "1.17e-38", "0.0"})
    EXPECT_NE(refusal({fmt::format("optimizer.epsilon={}", text)})
                  .find("is out of range, expected a number (1.1754943508222875e-38 or more)"),
              std::string::npos)
        << text;
  EXPECT_TRUE(allowed({"optimizer.epsilon=1.2e-38"}));
}

TEST(Rules, ACutRunKeepsItsWarmUp) {
  EXPECT_NO_THROW(
      parse_config("", "run.toml", {"train.steps=2", "optimizer.warmup_steps=700", "optimizer.decay_steps=1000"}));
}

TEST(Rules, ASpikeIsAboveTheMedian) {
  for (const char* above : {"1", "0.5"})
    EXPECT_NE(refusal({std::string("train.skip_norm_above=") + above}).find("set more than 1"), std::string::npos);
  EXPECT_TRUE(allowed({"train.skip_norm_above=0"}));
  EXPECT_TRUE(allowed({"train.skip_norm_above=1.5"}));
  EXPECT_NE(refusal({"train.max_bad_steps=0"}).find("out of range"), std::string::npos);
}

TEST(Rules, TensorParallelism) {
  expect_refusal({"parallel.tensor_parallel_degree=7", "model.heads=72", "model.hidden=144"},
                 "parallel.tensor_parallel_degree = 7 does not divide model.heads = 72; these do: 1 2 3 4 6 8 9 12");
  EXPECT_TRUE(allowed({"parallel.tensor_parallel_degree=6"}));
  expect_refusal({"parallel.tensor_parallel_degree=4", "model.key_value_heads=6"},
                 "parallel.tensor_parallel_degree = 4 neither divides model.key_value_heads = 6 nor is a multiple of "
                 "it, so that ranks can neither divide its heads nor share them evenly; these fit: 1 2 3 6 12");
  for (const char* degree : {"1", "2", "3", "6", "12"})
    EXPECT_TRUE(allowed({fmt::format("parallel.tensor_parallel_degree={}", degree), "model.key_value_heads=6"}));
  for (const char* degree : {"2", "12"})
    EXPECT_TRUE(allowed({fmt::format("parallel.tensor_parallel_degree={}", degree), "model.key_value_heads=1"}));
  EXPECT_TRUE(allowed({"parallel.tensor_parallel_degree=3", "model.vocab=50257"}));
}

TEST(Rules, AMicrobatchOfATensorGroupDividesTheBatch) {
  const std::vector<std::string> each = {"parallel.prescaled_batch=false", "parallel.tensor_parallel_degree=3",
                                         "batch.microbatch_size=2"};
  expect_refusal(
      each,
      "parallel.prescaled_batch = false makes microbatches of batch.microbatch_size 2 x "
      "parallel.tensor_parallel_degree 3 = 6 sequences, which do not divide batch.global_batch_size = 8; set "
      "true, or a batch of 6 or 12");
  for (const char* way : {"parallel.prescaled_batch=true", "batch.global_batch_size=6", "batch.global_batch_size=12"}) {
    std::vector<std::string> changed = each;
    changed.push_back(way);
    EXPECT_TRUE(allowed(changed)) << way;
  }
  EXPECT_TRUE(refusal({"parallel.prescaled_batch=false", "parallel.tensor_parallel_degree=1000", "model.heads=1000",
                       "model.hidden=1000", "batch.microbatch_size=1000001", "batch.global_batch_size=1000001"})
                  .ends_with("; set true"))
      << "a batch of 1000001000 is out of range";
}

TEST(Rules, SequenceParallelismSharesOutRows) {
  const std::vector<std::string> odd = {"parallel.sequence_parallel=true", "parallel.tensor_parallel_degree=4",
                                        "batch.microbatch_size=2", "batch.sequence_length=7"};
  expect_refusal(odd,
                 "parallel.sequence_parallel = true divides the rows of a microbatch, batch.microbatch_size 2 x "
                 "batch.sequence_length 7 = 14, which parallel.tensor_parallel_degree = 4 does not divide; degrees "
                 "that do: 1 2; sequences that fit: 6 8");
  for (const char* way : {"parallel.tensor_parallel_degree=1", "parallel.tensor_parallel_degree=2",
                          "batch.sequence_length=6", "batch.sequence_length=8", "parallel.prescaled_batch=false"}) {
    std::vector<std::string> changed = odd;
    changed.push_back(way);
    EXPECT_TRUE(allowed(changed)) << way;
  }
  EXPECT_TRUE(allowed({"parallel.sequence_parallel=true"})) << "nothing to do";
  EXPECT_NE(refusal({"parallel.sequence_parallel=true", "parallel.tensor_parallel_degree=12", "model.context=7"})
                .find("degrees that do: 1"),
            std::string::npos)
      << "no length up to 7 fits";
}

TEST(Rules, PipelineStagesHaveLayers) {
  expect_refusal({"parallel.pipeline_parallel_degree=13"},
                 "parallel.pipeline_parallel_degree = 13 x parallel.virtual_stages = 1 is more stages than "
                 "model.layers = 12; at most 12 x 1");
  expect_refusal({"parallel.pipeline_parallel_degree=4", "parallel.virtual_stages=5"},
                 "parallel.pipeline_parallel_degree = 4 x parallel.virtual_stages = 5 is more stages than "
                 "model.layers = 12; at most 4 x 3 or 2 x 5");
  expect_refusal({"parallel.pipeline_parallel_degree=13", "parallel.virtual_stages=12"},
                 "parallel.pipeline_parallel_degree = 13 x parallel.virtual_stages = 12 is more stages than "
                 "model.layers = 12; at most 12 x 1");
  expect_refusal({"parallel.virtual_stages=2"},
                 "parallel.virtual_stages = 2 needs more than one pipeline rank; set 1, or raise "
                 "parallel.pipeline_parallel_degree");
  expect_refusal({"parallel.pipeline_schedule=zb_v", "parallel.pipeline_parallel_degree=2"},
                 "parallel.pipeline_schedule = \"zb_v\" has two chunks of layers on each rank, but "
                 "parallel.virtual_stages is 1; set that to 2");
  expect_refusal({"parallel.active_microbatches=3", "parallel.pipeline_parallel_degree=2", "parallel.virtual_stages=2",
                  "parallel.pipeline_schedule=v_half"},
                 "parallel.active_microbatches = 3 has no effect under parallel.pipeline_schedule = \"v_half\"; set 0");
  expect_refusal({"parallel.active_microbatches=1", "parallel.pipeline_parallel_degree=2", "parallel.virtual_stages=2",
                  "parallel.pipeline_schedule=zb_v"},
                 "parallel.active_microbatches = 1 is less than the 2 that parallel.pipeline_schedule = \"zb_v\" needs "
                 "on this many pipeline ranks; set 0, or the schedule \"v_half\", which needs half the memory");
  EXPECT_TRUE(allowed({"parallel.active_microbatches=2", "parallel.pipeline_parallel_degree=2",
                       "parallel.virtual_stages=2", "parallel.pipeline_schedule=zb_v"}));
  for (const auto& [degree, chunks] : {std::pair{12, 1}, {4, 3}, {2, 5}, {2, 6}})
    EXPECT_TRUE(allowed({fmt::format("parallel.pipeline_parallel_degree={}", degree),
                         fmt::format("parallel.virtual_stages={}", chunks)}));
}

TEST(Rules, LayersOfStages) {
  const auto with = [](const char* list) {
    return std::vector<std::string>{fmt::format("parallel.layers_per_stage=\"{}\"", list),
                                    "parallel.pipeline_parallel_degree=3", "model.layers=16"};
  };
  const auto counts = [](const std::vector<std::string>& overrides) {
    return layers_per_stage(parse_config("", "run.toml", overrides));
  };
  EXPECT_EQ(counts(with("5 6 5")), (std::vector<int64_t>{5, 6, 5}));
  EXPECT_EQ(counts(with("  1\t14 1 ")), (std::vector<int64_t>{1, 14, 1}));
  EXPECT_EQ(counts({"parallel.layers_per_stage=12"}), std::vector<int64_t>{12});
  EXPECT_EQ(counts({}), std::vector<int64_t>{});

  const std::string way_out = "; give 3 numbers that add up to model.layers = 16, or leave it empty";
  const auto expect = [&](const char* list, const std::string& why) {
    EXPECT_TRUE(refusal(with(list)).ends_with(why + way_out)) << refusal(with(list));
  };
  for (const auto& [list, count] : {std::pair{" ", 0}, {"5 6", 2}, {"5 6 4 1", 4}})
    expect(list, fmt::format("has {} for the 3 stages of parallel.pipeline_parallel_degree = 3 x "
                             "parallel.virtual_stages = 1",
                             count));
  expect("5 6 6", "makes 17 layers");
  for (const char* word : {"0", "-2", "six", "6.0", "5,6,5", "17", "9223372036854775807", "99999999999999999999"})
    expect(fmt::format("5 {} 5", word).c_str(), fmt::format("has \"{}\", which is not a number from 1 to 16", word));
  EXPECT_EQ(
      message_of([] { parse_config("[parallel]\nlayers_per_stage = \"11\"\n", "run.toml"); }).rfind("run.toml:2: ", 0),
      0u);
}

TEST(Rules, Sharding) {
  const std::pair<const char*, const char*> useless[] = {
      {"parallel.sharded_data_parallel_degree = 2", "has nothing to share under X; set 0"},
      {"parallel.hierarchical_allgather = true", "has nothing to gather under X; set false"},
      {"parallel.max_live_parameters = 1000", "has nothing to gather under X; set 0"},
      {"parallel.replicate_below = 1", "has nothing to replicate under X; set 0"},
  };
  for (auto [set, why] : useless) {
    std::string message = fmt::format("{} {}, or another strategy", set, why);
    message.replace(message.find('X'), 1, "parallel.sharding_strategy = \"no_shard\"");
    std::string text = set;
    text.replace(text.find(" = "), 3, "=");
    expect_refusal({text, "parallel.sharding_strategy=no_shard"}, message);
    EXPECT_TRUE(allowed({text})) << text;
  }
  EXPECT_TRUE(allowed({"parallel.sharded_data_parallel_degree=1", "parallel.sharding_strategy=no_shard"}));
}

TEST(Rules, PlacementIsAnOrderOfTheAxes) {
  for (const char* wrong : {"", "tensor shard data", "tensor tensor data pipeline", "tensor shard data pipeline data",
                            "tensor shard data stage", "tensorshard data pipeline"})
    expect_refusal(
        {fmt::format("parallel.placement={}", wrong)},
        fmt::format("parallel.placement = \"{}\" is not an order of the axes; write each of tensor, shard, data "
                    "and pipeline once, innermost first",
                    wrong));
  for (const char* right :
       {"pipeline data shard tensor", "shard,tensor,data,pipeline", "shard, tensor, data, pipeline"})
    EXPECT_TRUE(allowed({fmt::format("parallel.placement=\"{}\"", right)})) << right;
}

TEST(Rules, LossScale) {
  expect_refusal({"precision.loss_scale=8"},
                 "precision.loss_scale = 8.0 has no effect with precision.compute = \"fp32\"; set 0");
  EXPECT_NE(refusal({"precision.initial_loss_scale=0.5"}).find("is below precision.minimum_loss_scale = 1"),
            std::string::npos);
}

TEST(Rules, Run) {
  expect_refusal({"run.output="}, "run.output = \"\" is empty; name a folder, such as runs/first");
  expect_refusal({"checkpoint.resume="},
                 "checkpoint.resume = \"\" is empty; write auto, best, never or the path of a checkpoint");
  expect_refusal({"train.evaluate_every=10"},
                 "train.evaluate_every = 10 needs data.validation, which is empty; name a token file there, or set 0");
}

TEST(Rules, ARendezvousIsWithoutMpi) {
  expect_refusal({"communication.rendezvous=/shared/meet", "communication.backend=mpi"},
                 "communication.rendezvous = \"/shared/meet\" is for ranks started without MPI, but "
                 "communication.backend = \"mpi\" needs MPI; leave it empty, or set nccl");
  EXPECT_TRUE(allowed({"communication.rendezvous=/shared/meet"}));
  EXPECT_TRUE(allowed({"communication.backend=mpi", "communication.timeout=0.5", "communication.max_ctas=8"}));
  EXPECT_TRUE(allowed({"communication.timeout=0"}));
  EXPECT_NE(refusal({"communication.timeout=-1"}).find("communication.timeout = -1.0 is out of range"),
            std::string::npos);
}

TEST(Rules, OffloadNeedsLayersThatAreRecomputed) {
  for (const char* kind : {"none", "selective"})
    expect_refusal(
        {"memory.offload_activations=true", fmt::format("memory.activation_checkpointing={}", kind)},
        fmt::format(
            "memory.offload_activations = true copies the inputs of recomputed layers, but "
            "memory.activation_checkpointing = \"{}\" recomputes no whole layer; set each, group_N or contiguous there",
            kind));
  for (const char* kind : {"each", "group_4", "contiguous"})
    EXPECT_TRUE(allowed({"memory.offload_activations=true", fmt::format("memory.activation_checkpointing={}", kind)}));
}

TEST(Rules, ParametersAreOffloadedBesideTheOptimizerAndWhereTheyAreGathered) {
  expect_refusal({"memory.offload_parameters=true", "memory.offload_optimizer=0.75"},
                 "memory.offload_parameters = true is for weights whose master weights are also in host memory, but "
                 "memory.offload_optimizer = 0.75 leaves some on the device; set 1 there");
  expect_refusal(
      {"memory.offload_parameters=true", "memory.offload_optimizer=1", "parallel.sharding_strategy=shard_grad_op"},
      "memory.offload_parameters = true copies a layer to the device when it is gathered, but "
      "parallel.sharding_strategy = \"shard_grad_op\" does not gather it for each use; set full_shard there, which "
      "also works on one rank");
  EXPECT_TRUE(allowed({"memory.offload_parameters=true", "memory.offload_optimizer=1"}));
  EXPECT_TRUE(allowed({"memory.offload_optimizer=0.5", "parallel.sharding_strategy=no_shard"}));
}

TEST(Rules, StateInBf16) {
  const std::string narrow = "precision.master=bf16", random = "precision.stochastic_rounding=true";
  expect_refusal({narrow},
                 "precision.master = \"bf16\" has fewer digits than weights have with precision.compute = \"fp32\"; "
                 "set bf16 there, or fp32 here");
  EXPECT_NE(refusal({narrow, "precision.compute=fp16"}).find("\"fp16\"; set bf16 there"), std::string::npos);
  expect_refusal(
      {random},
      "precision.stochastic_rounding = true has nothing to round: precision.master and precision.moments are "
      "fp32; set bf16 there, or false");
  EXPECT_TRUE(allowed({narrow, random, "precision.compute=bf16"}));
  EXPECT_TRUE(allowed({random, "precision.moments=bf16"}));
}

TEST(Rules, GraphsHoldWhatIsTheSameInEachStep) {
  const std::string graphs = "run.cuda_graphs=true";
  expect_refusal(
      {graphs, "parallel.tensor_parallel_degree=2"},
      "run.cuda_graphs = true cannot include sums over ranks, which parallel.tensor_parallel_degree = 2 has inside "
      "layers; set 1 there, or false here");
  expect_refusal({graphs, "parallel.pipeline_parallel_degree=2"},
                 "run.cuda_graphs = true does not work for stages that wait for one another's messages, and "
                 "parallel.pipeline_parallel_degree = 2; set 1 there, or false here");
  EXPECT_TRUE(allowed({graphs, "model.dropout=0.2"}));
}

TEST(Rules, AConfigBuiltByHandIsCheckedAsWell) {
  Config config = resolve(Config{});
  config.model.heads = 0;
  EXPECT_FALSE(is_valid(config));
  EXPECT_EQ(message_of([&] { validate(config); }),
            "model.heads = 0 is out of range, expected an integer (heads, 1 to 1000000)");
}

TEST(Rules, AProblemOfTwoKeysNamesTheLineThatSetOne) {
  EXPECT_EQ(message_of([] { parse_config("[model]\nhidden = 768\nheads = 7\n", "run.toml"); }).rfind("run.toml:3: ", 0),
            0u);
  EXPECT_EQ(message_of([] { parse_config("[model]\nhidden = 100\n", "run.toml"); }).rfind("run.toml: ", 0), 0u)
      << "heads is a default: no line";
}

}  // namespace
}  // namespace megalith
