// The field table covers Config, and what is printed from it reads back to the same value.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "configs/config.h"
#include "configs/field_table.h"

namespace megalith {
namespace {

// The number of members of an aggregate: the most initialisers it takes.
struct Anything {
  template <class T>
  operator T() const;  // never called
};
template <class Aggregate, class... Initialisers>
constexpr size_t members(Initialisers... initialisers) {
  if constexpr (requires { Aggregate{initialisers..., Anything{}}; })
    return members<Aggregate>(initialisers..., Anything{});
  else
    return sizeof...(Initialisers);
}

TEST(Table, HasOneLineForEachMember) {
  std::map<std::string_view, size_t> lines;
  for (const Field& field : field_table()) ++lines[field.section];
  // A model has a copy of two members that belong to other sections (resolve).
  const std::map<std::string_view, size_t> expected = {{"model", members<ModelConfig>() - 2},
                                                       {"adapter", members<AdapterConfig>()},
                                                       {"data", members<DataConfig>()},
                                                       {"batch", members<BatchConfig>()},
                                                       {"parallel", members<ParallelConfig>()},
                                                       {"memory", members<MemoryConfig>()},
                                                       {"precision", members<PrecisionConfig>()},
                                                       {"optimizer", members<OptimizerConfig>()},
                                                       {"train", members<TrainConfig>()},
                                                       {"checkpoint", members<CheckpointConfig>()},
                                                       {"run", members<RunConfig>()},
                                                       {"communication", members<CommunicationConfig>()},
                                                       {"hardware", members<HardwareConfig>()}};
  EXPECT_EQ(lines, expected);
  EXPECT_EQ(members<Config>(), expected.size());
}

// Another value than the default, within range; not necessarily one that validate() accepts.
Value another(const Field& field, const Value& now) {
  switch (field.kind) {
    case Field::Kind::integer: return std::get<int64_t>(now) + 1;
    case Field::Kind::real: return std::get<double>(now) == 0 ? 0.1 : std::get<double>(now) * 0.7;
    case Field::Kind::boolean: return !std::get<bool>(now);
    case Field::Kind::text: return std::get<std::string>(now) + "x";
    case Field::Kind::choice: break;
  }
  for (const std::string& choice : field.choices)
    if (choice != std::get<std::string>(now)) return choice;
  return now;
}

TEST(Table, EachLineReachesItsOwnMember) {
  for (const Field& field : field_table()) {
    Config config;
    const Value value = another(field, field.get(config));
    ASSERT_TRUE(field.set(config, value)) << field.name();
    for (const Field& other : field_table())
      EXPECT_EQ(other.get(config) == other.get(Config{}), other.name() != field.name())
          << field.name() << " changes " << other.name();
    EXPECT_EQ(field.get(config), value) << field.name();
  }
}

TEST(Table, DefaultsAreInRangeAndEveryLineHasASentence) {
  std::set<std::string> names;
  for (const Field& field : field_table()) {
    EXPECT_EQ(value_problem(field, field.get(Config{})), "") << field.name();
    EXPECT_GE(field.help.size(), 10u) << field.name();
    EXPECT_FALSE(field.help.ends_with('.')) << field.name();
    EXPECT_TRUE(names.insert(field.name()).second) << field.name();
    EXPECT_EQ(field.kind == Field::Kind::choice, !field.choices.empty()) << field.name();
  }
}

TEST(Table, ChoicesAreWordsThatReadBack) {
  for (const Field& field : field_table()) {
    for (std::string choice : field.choices) {
      if (choice == "group_N") choice = "group_12";
      Config config;
      ASSERT_TRUE(field.set(config, choice)) << field.name() << " " << choice;
      EXPECT_EQ(std::get<std::string>(field.get(config)), choice);
    }
  }
  EXPECT_EQ(to_string(ShardingStrategy::no_shard), "no_shard");
  EXPECT_EQ(to_string(ComputeType::fp32), "fp32");
  EXPECT_EQ(to_string(StorageType::bf16), "bf16");
  EXPECT_EQ(to_string(Decay::constant), "constant");
  EXPECT_EQ(to_string(Device::automatic), "auto");
  EXPECT_EQ(to_string(Backend::mpi), "mpi");
  EXPECT_EQ(to_string(ActivationCheckpointing{ActivationCheckpointing::Kind::group, 3}), "group_3");
}

TEST(Table, GroupSizesAreExact) {
  const Field* field = find_field("memory.activation_checkpointing");
  ASSERT_TRUE(field);
  Config config;
  ASSERT_TRUE(field->set(config, Value{"group_4"}));
  EXPECT_EQ(config.memory.activation_checkpointing, (ActivationCheckpointing{ActivationCheckpointing::Kind::group, 4}));
  for (const char* wrong :
       {"group", "group_", "group_0", "group_-1", "group_4x", "group_ 4", "group_99999999999999999"})
    EXPECT_FALSE(field->set(config, Value{wrong})) << wrong;
}

TEST(Print, RoundTripsOddValues) {
  Config config = resolve(Config{});
  config.run.output = "tab\t \"quote\" back\\slash 'single' # no comment \x01\x7f caf\xc3\xa9";
  config.optimizer.learning_rate = std::nextafter(0.1, 1.0);
  config.optimizer.min_learning_rate = std::numeric_limits<double>::denorm_min();
  config.optimizer.weight_decay = std::numeric_limits<double>::max();
  config.optimizer.gradient_clip = 1.0 / 3.0;
  config.data.seed = 9007199254740991;
  EXPECT_EQ(parse_config(to_toml(config), "printed"), config) << to_toml(config);
  EXPECT_EQ(to_toml(parse_config(to_toml(config), "printed")), to_toml(config));
}

TEST(Print, RoundTripsAnyDouble) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) {
    Config config = resolve(Config{});
    double x = std::abs(std::bit_cast<double>(random()));
    if (!(x > 0 && x <= std::numeric_limits<double>::max())) continue;
    config.optimizer.weight_decay = x;
    const Config again = parse_config(fmt::format("optimizer.weight_decay = {}", toml_text(x)), "printed");
    ASSERT_EQ(std::bit_cast<uint64_t>(again.optimizer.weight_decay), std::bit_cast<uint64_t>(x)) << toml_text(x);
  }
}

TEST(Print, AMapHoldsEveryKey) {
  Config config;
  config.run.output = "a  # b = \"c\"\n";
  config.model.dropout = 0.5;
  const std::map<std::string, std::string> values = key_values(config);
  EXPECT_EQ(values.size(), field_table().size());
  EXPECT_EQ(values.at("run.output"), "\"a  # b = \\\"c\\\"\\n\"");
  EXPECT_EQ(values.at("model.dropout"), "0.5");
  EXPECT_EQ(values.at("model.layers"), "12");
}

TEST(Print, IsCompleteAndCommented) {
  const std::string text = to_toml(resolve(Config{}));
  const std::string description = describe_options();
  for (const Field& field : field_table()) {
    EXPECT_NE(text.find(fmt::format("\n{} = {}", field.key, toml_text(field.get(resolve(Config{}))))),
              std::string::npos)
        << field.name();
    EXPECT_NE(text.find(fmt::format("# {}\n", field.help)), std::string::npos) << field.name();
    EXPECT_NE(description.find(fmt::format("  {} = {}", field.key, toml_text(field.get(Config{})))), std::string::npos);
    EXPECT_NE(description.find(fmt::format("{}.\n", field.help)), std::string::npos);
    EXPECT_NE(description.find(field.expected()), std::string::npos);
  }
}

}  // namespace
}  // namespace megalith
