// Reading: what a file and overrides set, and what every kind of bad input is told.
#include "configs/config.h"
#include "tests/message_of.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace megalith {
namespace {

Config overridden(const std::vector<std::string>& overrides) { return parse_config("", "run.toml", overrides); }

std::string text_refusal(std::string_view toml) {
  return message_of([&] { parse_config(toml, "run.toml"); });
}

std::string override_refusal(const std::string& text) {
  return message_of([&] { overridden({text}); });
}

TEST(Read, EmptyTextGivesTheDefaultsResolved) {
  const Config config = parse_config("", "run.toml");
  EXPECT_EQ(config, resolve(Config{}));
  EXPECT_EQ(config.batch.sequence_length, config.model.context);
  EXPECT_EQ(config.optimizer.decay_steps, config.train.steps);
  EXPECT_EQ(config.checkpoint.directory, config.run.output + "/checkpoints");
}

TEST(Read, CommunicationAloneWhateverElseIsWrong) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("megalith-{}.toml", ::getpid())).string();
  std::ofstream(path) << "[batch]\nsize = 1\n[communication]\nrendezvous = \"here\"\n[model]\nlayers = \"two\"\n";
  EXPECT_EQ(load_communication(path, {}), (CommunicationConfig{.rendezvous = "here"}));
  EXPECT_EQ(load_communication(path, {"x", "model.layers=-1", "communication.timeout=2", "communication.backend=fax"}),
            (CommunicationConfig{.rendezvous = "here", .timeout = 2}));
  std::filesystem::remove(path);
  EXPECT_EQ(load_communication(path, {"communication.rendezvous=there"}), (CommunicationConfig{.rendezvous = "there"}));
}

TEST(Read, EveryKindOfValue) {
  const Config config = parse_config(R"(
run.output = "a # b"
[model]
layers = 0x10
dropout = 0.25
[data]
shuffle = false
[optimizer]
weight_decay = 1           # an integer where a number is wanted
[parallel]
sharding_strategy = "no_shard"
[memory]
activation_checkpointing = "each"
)",
                                     "run.toml");
  EXPECT_EQ(config.run.output, "a # b");
  EXPECT_EQ(config.model.layers, 16);
  EXPECT_EQ(config.model.dropout, 0.25);
  EXPECT_FALSE(config.data.shuffle);
  EXPECT_EQ(config.optimizer.weight_decay, 1.0);
  EXPECT_EQ(config.parallel.sharding_strategy, ShardingStrategy::no_shard);
  EXPECT_EQ(config.memory.activation_checkpointing.kind, ActivationCheckpointing::Kind::each);
}

TEST(Read, WhatIsSetIsNotFilledIn) {
  const Config config =
      parse_config("batch.sequence_length = 64\noptimizer.decay_steps = 7\ncheckpoint.directory = \"c\"\n", "run.toml");
  EXPECT_EQ(config.batch.sequence_length, 64);
  EXPECT_EQ(config.optimizer.decay_steps, 7);
  EXPECT_EQ(config.checkpoint.directory, "c");
}

TEST(Read, UnknownNamesAreAnsweredWithTheNearest) {
  EXPECT_EQ(text_refusal("\n[modle]\nlayers = 4\n"),
            "run.toml:3: unknown key `modle.layers`, did you mean `model.layers`?");
  EXPECT_EQ(text_refusal("[model]\nlayer = 4\n"),
            "run.toml:2: unknown key `model.layer`, did you mean `model.layers`?");
  EXPECT_EQ(text_refusal("layers = 4\n"), "run.toml:1: unknown key `layers`, did you mean `model.layers`?");
  EXPECT_EQ(text_refusal("[train]\nlearning_rate = 1.0\n"),
            "run.toml:2: unknown key `train.learning_rate`, did you mean `optimizer.learning_rate`?");
  EXPECT_EQ(text_refusal("[modle]\n"), "run.toml:1: unknown section [modle], did you mean [model]?");
  EXPECT_TRUE(text_refusal("[model]\nquux = 1\n")
                  .starts_with("run.toml:2: unknown key `model.quux`; [model] has layers hidden heads vocab context "
                               "dropout norm "));
  EXPECT_EQ(text_refusal("[quux]\nfoo = 1\n"),
            "run.toml:2: unknown key `quux.foo`; the sections are model adapter data batch parallel memory precision "
            "optimizer train checkpoint run communication hardware");
}

TEST(Read, WrongTypes) {
  EXPECT_EQ(text_refusal("[model]\nlayers = \"four\"\n"),
            "run.toml:2: model.layers = \"four\" is a string, expected an integer (layers, 1 to 10000)");
  EXPECT_EQ(text_refusal("[model]\nlayers = 1.5\n"),
            "run.toml:2: model.layers = 1.5 is a real number, expected an integer (layers, 1 to 10000)");
  EXPECT_EQ(text_refusal("[model]\nlayers = true\n"),
            "run.toml:2: model.layers = true is a boolean, expected an integer (layers, 1 to 10000)");
  EXPECT_EQ(text_refusal("[model]\nlayers = [4]\n"),
            "run.toml:2: model.layers is an array, expected an integer (layers, 1 to 10000)");
  EXPECT_EQ(text_refusal("[model.layers]\nx = 1\n"),
            "run.toml:1: model.layers is a section, expected an integer (layers, 1 to 10000)");
  EXPECT_EQ(text_refusal("[data]\nshuffle = 1\n"),
            "run.toml:2: data.shuffle = 1 is an integer, expected true or false");
  EXPECT_EQ(text_refusal("[run]\noutput = 1979-05-27\n"), "run.toml:2: run.output is a date, expected a string");
  EXPECT_EQ(text_refusal("model = 4\n"),
            "run.toml:1: model = 4 is an integer, expected a section; write [model] with its keys below");
}

TEST(Read, OutOfRange) {
  EXPECT_EQ(text_refusal("[model]\nlayers = 0\n"),
            "run.toml:2: model.layers = 0 is out of range, expected an integer (layers, 1 to 10000)");
  EXPECT_EQ(text_refusal("[model]\nlayers = 10001\n"),
            "run.toml:2: model.layers = 10001 is out of range, expected an integer (layers, 1 to 10000)");
  EXPECT_EQ(text_refusal("[model]\ndropout = 1.0\n"),
            "run.toml:2: model.dropout = 1.0 is out of range, expected a number (probability, 0 to below 1)");
  EXPECT_EQ(text_refusal("[optimizer]\nlearning_rate = 0\n"),
            "run.toml:2: optimizer.learning_rate = 0.0 is out of range, expected a number (above 0)");
  for (const char* value : {"nan", "inf", "-inf"})
    EXPECT_NE(text_refusal(fmt::format("[optimizer]\nweight_decay = {}\n", value)).find("is out of range"),
              std::string::npos);
  // 2^53 is the first integer that a double may confuse with its neighbour.
  EXPECT_EQ(parse_config("train.seed = 9007199254740991\n", "run.toml").train.seed, 9007199254740991);
  EXPECT_NE(text_refusal("train.seed = 9007199254740992\n").find("is out of range"), std::string::npos);
}

// Numbers beyond 64 bits or a double are numbers, and one of whole value is an integer.
TEST(Read, NumbersOfAnySize) {
  for (const char* steps : {"1e5", "100000.0", "100_000"}) {
    EXPECT_EQ(parse_config(fmt::format("train.steps = {}\n", steps), "run.toml").train.steps, 100000) << steps;
    EXPECT_EQ(overridden({fmt::format("train.steps={}", steps)}).train.steps, 100000) << steps;
  }
  EXPECT_EQ(overridden({"train.steps=007"}).train.steps, 7);
  EXPECT_EQ(overridden({"optimizer.weight_decay=.5"}).optimizer.weight_decay, 0.5);
  for (const char* beyond : {"1e400", "-1e400", "9223372036854775808", "-9223372036854775809", "1e20", "1e15", "inf"}) {
    const std::string refusal = override_refusal(fmt::format("train.steps={}", beyond));
    EXPECT_NE(refusal.find("is out of range, expected an integer (updates, 1 to 1000000000000)"), std::string::npos)
        << refusal;
    EXPECT_NE(text_refusal(fmt::format("train.steps = {}\n", beyond)).find("is out of range"), std::string::npos);
  }
  EXPECT_NE(override_refusal("optimizer.learning_rate=1e400").find("is out of range"), std::string::npos);
  EXPECT_EQ(overridden({"optimizer.learning_rate=99999999999999999999"}).optimizer.learning_rate, 1e20);
  EXPECT_NE(override_refusal("train.steps=1e").find("\"1e\" is a string"), std::string::npos);
}

TEST(Read, UnknownChoiceListsTheChoices) {
  EXPECT_EQ(text_refusal("[optimizer]\ndecay = \"cubic\"\n"),
            "run.toml:2: optimizer.decay = \"cubic\" is not a choice, expected one of cosine linear constant sqrt");
  EXPECT_EQ(text_refusal("[memory]\nactivation_checkpointing = \"group_0\"\n"),
            "run.toml:2: memory.activation_checkpointing = \"group_0\" is not a choice, expected one of none selective "
            "each group_N contiguous");
}

TEST(Read, SyntaxErrorsSayWhere) {
  EXPECT_EQ(text_refusal("[model]\nlayers = 1\nlayers = 2\n").rfind("run.toml:3:", 0), 0u);
  EXPECT_NE(text_refusal("[model]\nlayers = 1\nlayers = 2\n").find("keep one of the two"), std::string::npos);
  EXPECT_EQ(text_refusal("\n\n[model\n").rfind("run.toml:3:", 0), 0u);
  EXPECT_EQ(text_refusal("[run]\noutput = \"\xff\"\n").rfind("run.toml:2:", 0), 0u);
  EXPECT_NE(text_refusal("[run]\noutput = \"a\\u0000b\"\n").find("contains a NUL character"), std::string::npos);
}

// data.train may be a list; it prints as one and reads back. Elsewhere a list is refused.
// Each part of a key is a table in the one before, which lets go of it by a call of its own: 100,000 were too many.
TEST(Read, KeysOfManyParts) {
  std::string key = "a";
  for (int i = 1; i < 100000; i++) key += i % 2 ? ".a" : ".\"=#'\"";
  // A text of lines may end in a quote of its own.
  const std::string single(3, '\''), lines(3, '"');
  for (const std::string& toml :
       {key + " = 1\n", "[" + key + "]\n", "[[" + key + "]]\n", "x = [{ " + key + " = 1 }]\n",
        "# " + lines + "\n'\"'.x = " + lines + "\n'\\" + lines + lines + "\n" + key + " = 1\n",
        "x = { y = " + single + "z" + single + "', " + key + " = 1 }\n",
        "x = { y = " + lines + "z" + lines + "\"\", " + key + " = 1 }\n"})
    EXPECT_NE(text_refusal(toml).find("a key has 100"), std::string::npos) << text_refusal(toml).substr(0, 200);
  EXPECT_NE(override_refusal("model.layers={" + key + "=1}"), "");
  // Dots elsewhere are no parts.
  const std::string dots(40, '.');
  EXPECT_EQ(parse_config("# " + dots + "\n[run]\noutput = \"" + dots + "\"\n", "run.toml").run.output, dots);
}

TEST(Override, ReadsLists) {
  for (const std::string list : {R"(["a b.bin 0.7", "c.bin 0.3"])", R"([ 'one "quoted" 1' ])"}) {
    const Config config = overridden({"data.train=" + list});
    EXPECT_TRUE(config.data.train.ends_with('\n')) << config.data.train;
    EXPECT_EQ(parse_config("[data]\ntrain = " + list + "\n", "test").data.train, config.data.train);
    EXPECT_EQ(parse_config(to_toml(config), "test").data.train, config.data.train) << to_toml(config);
  }
  EXPECT_EQ(overridden({R"(data.train=["a 1", "b 2"])"}).data.train, "a 1\nb 2\n");
  EXPECT_EQ(overridden({"data.train=wiki/*.bin"}).data.train, "wiki/*.bin");
  EXPECT_EQ(overridden({"data.train=[a"}).data.train, "[a");
  EXPECT_NE(text_refusal("[data]\ntrain = [1, 2]\n").find("is an array, expected a string or a list of strings"),
            std::string::npos);
  for (const std::string other : {"false", "2", "0.5"})
    EXPECT_NE(text_refusal("[data]\ntrain = " + other + "\n").find("expected a string or a list of strings"),
              std::string::npos);
  EXPECT_NE(text_refusal("[data]\ntrain = []\n").find("empty list"), std::string::npos);
  EXPECT_NE(text_refusal("[data]\ntrain = \"a\\nb\"\n").find("line break"), std::string::npos);
  EXPECT_NE(text_refusal("[data]\ntrain = [\"a\\nb 1\"]\n").find("line break"), std::string::npos);
  EXPECT_NE(text_refusal("[data]\ntokenizer = [\"a\"]\n").find("expected a string"), std::string::npos);
}

TEST(Override, ReadsTomlAndBareWords) {
  const Config config =
      overridden({"model.layers=3", "model.layers = 5", "run.output=runs/a b#c", "data.train=\"quoted\"",
                  "parallel.sharding_strategy=no_shard", "optimizer.learning_rate=1e-3", "data.shuffle=false",
                  "data.validation=2024", "checkpoint.init_from=", "checkpoint.resume=a=b"});
  EXPECT_EQ(config.model.layers, 5) << "the later one wins";
  EXPECT_EQ(config.run.output, "runs/a b#c");
  EXPECT_EQ(config.data.train, "quoted");
  EXPECT_EQ(config.parallel.sharding_strategy, ShardingStrategy::no_shard);
  EXPECT_EQ(config.optimizer.learning_rate, 1e-3);
  EXPECT_FALSE(config.data.shuffle);
  EXPECT_EQ(config.data.validation, "2024") << "a name, though it looks like a number";
  EXPECT_EQ(config.checkpoint.init_from, "");
  EXPECT_EQ(config.checkpoint.resume, "a=b");
  EXPECT_EQ(config.checkpoint.directory, "runs/a b#c/checkpoints") << "filled in after the overrides";
}

TEST(Override, WinsOverTheFile) {
  EXPECT_EQ(parse_config("[model]\nlayers = 7\n", "run.toml", {"model.layers=8"}).model.layers, 8);
}

TEST(Override, Refusals) {
  EXPECT_EQ(override_refusal("model.layers"), "override `model.layers` is malformed; write section.key=value");
  EXPECT_EQ(override_refusal("=3"), "override `=3` is malformed; write section.key=value");
  EXPECT_EQ(override_refusal(""), "override `` is malformed; write section.key=value");
  EXPECT_EQ(override_refusal("layers=3"), "override `layers=3`: unknown key `layers`, did you mean `model.layers`?");
  EXPECT_EQ(override_refusal("modle.layers=3"),
            "override `modle.layers=3`: unknown key `modle.layers`, did you mean `model.layers`?");
  EXPECT_EQ(override_refusal("model.layers=four"),
            "override `model.layers=four`: model.layers = \"four\" is a string, expected an integer (layers, 1 to "
            "10000)");
  EXPECT_EQ(override_refusal("model.layers=3\nhidden=4").find("override `model.layers=3\\nhidden=4`: "), 0u);
  EXPECT_NE(override_refusal("run.output=\"open").find("the quotes do not match"), std::string::npos);
  EXPECT_NE(override_refusal("run.output=\xff").find("is not UTF-8"), std::string::npos);
}

class Load : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "megalith-config-XXXXXX").string();
    ASSERT_TRUE(mkdtemp(pattern.data())) << pattern;
    folder_ = pattern;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::filesystem::path folder_;
};

TEST_F(Load, ReadsAFile) {
  const std::string path = folder_ / "run.toml";
  std::ofstream(path) << "[model]\nlayers = 3\n";
  EXPECT_EQ(load_config(path, {"model.heads=4"}).model.layers, 3);
  std::ofstream(path, std::ios::trunc).close();
  EXPECT_EQ(load_config(path), resolve(Config{}));
}

TEST_F(Load, SaysWhyItCannot) {
  const std::string missing = folder_ / "missing.toml";
  EXPECT_EQ(message_of([&] { load_config(missing); }),
            fmt::format("cannot read configuration {}: No such file or directory; is the path right?", missing));
  EXPECT_NE(message_of([&] { load_config(folder_); }).find("it is a folder"), std::string::npos);
  const std::string pipe = folder_ / "pipe.toml";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);  // whoever opens it waits for a writer
  for (const std::string& path : {pipe, std::string("/dev/zero")})
    EXPECT_EQ(message_of([&] { load_config(path); }),
              fmt::format("cannot read configuration {}: it is not a plain file; is the path right?", path));
  const std::string huge = folder_ / "huge.toml";
  std::ofstream(huge).close();
  std::filesystem::resize_file(huge, int64_t{1} << 40);
  EXPECT_NE(message_of([&] { load_config(huge); }).find("has 1099511627776 bytes"), std::string::npos);
}

}  // namespace
}  // namespace megalith
