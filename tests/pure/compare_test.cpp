// The table of `megalith plan --compare`.
#include "trainer/planner/compare.h"

#include <gtest/gtest.h>

#include "tests/message_of.h"
#include "tests/pure/small_run.h"

namespace megalith {
namespace {

std::vector<Compared> kinds_of_recomputation(const Config& config, const std::optional<Hardware>& hardware) {
  std::vector<Compared> all;
  for (const std::string& value : comparison_of("memory.activation_checkpointing", config).values) {
    Config one = parse_config(to_toml(config), "small", {"memory.activation_checkpointing=" + value});
    all.push_back(compare(value, one, hardware, 2));
  }
  return all;
}

TEST(Compare, TakesAllChoicesOrThoseThatAreNamed) {
  Config config = small_config();
  config.model.layers = 9;
  EXPECT_EQ(comparison_of("memory.activation_checkpointing", config).values,
            (std::vector<std::string>{"none", "selective", "each", "group_2", "group_4", "group_8", "contiguous"}));
  const Comparison named = comparison_of("batch.microbatch_size=1,5", config);
  EXPECT_EQ(named.key, "batch.microbatch_size");
  EXPECT_EQ(named.values, (std::vector<std::string>{"1", "5"}));
  EXPECT_EQ(message_of([&] { comparison_of("model.layers", config); }),
            "--compare model.layers: it has no list of choices; give values, as in --compare model.layers=1,2,4");
  EXPECT_EQ(message_of([&] { comparison_of("model.layer", config); }),
            "there is no option model.layer; megalith train --help lists them");
}

// The rows are what a plan of each says.
TEST(Compare, ShowsMemoryWorkAndTimeOfEach) {
  Config config = small_config();
  config.batch.microbatch_size = 1;
  config.model.layers = 6;
  const Hardware machines = load_hardware(MEGALITH_SOURCE_DIR "/configs/hardware/p4d.24xlarge.toml");
  const std::vector<Compared> all = kinds_of_recomputation(config, machines);
  ASSERT_EQ(all.size(), 6u);
  for (const Compared& c : all) {
    Config one = config;
    one.memory = parse_config("", "", {"memory.activation_checkpointing=" + c.value}).memory;
    EXPECT_EQ(c.memory, rehearse(one, make_plan(one, 2, 0)).memory) << c.value;
    EXPECT_GT(c.tokens, 0);
  }
  EXPECT_LT(all[0].flops, all[1].flops);  // GELU and norms
  EXPECT_LT(all[1].flops, all[2].flops);
  EXPECT_LT(all[2].flops, all[5].flops);  // the outputs inside of a group
  EXPECT_GT(all[0].tokens, all[2].tokens);

  const std::string text = report("memory.activation_checkpointing", all);
  EXPECT_NE(text.find("contiguous"), std::string::npos) << text;
  EXPECT_NE(text.find("tokens/s"), std::string::npos) << text;
  EXPECT_EQ(report("x", kinds_of_recomputation(config, {})).find("tokens/s"), std::string::npos);
}

// A row fits where its devices and its hosts hold it.
TEST(Compare, AHostThatIsTooSmallDoesNotFit) {
  Config config = small_config();
  config.memory.offload_optimizer = 1;
  config.parallel.ranks_per_node = 2;
  Hardware machines = load_hardware(MEGALITH_SOURCE_DIR "/configs/hardware/p4d.24xlarge.toml");
  for (const bool fits : {true, false}) {
    const Compared found = compare("x", config, machines, 2);
    ASSERT_GT(found.on_host, 0);
    EXPECT_EQ(found.fits, fits);
    machines.host.memory = 1.5 * gib(found.on_host);  // of the two ranks of a node
  }
}

// A group of all layers keeps one input, and recomputes all that it has saved by that at once.
TEST(Compare, SaysWhatCostsMoreThanItSaves) {
  Config config = small_config();
  config.batch.microbatch_size = 1;
  config.model.layers = 6;
  const std::string text = report("memory.activation_checkpointing", kinds_of_recomputation(config, {}));
  const auto line = [&](const std::string& word) {
    const size_t begin = text.find("\n  " + word);
    return text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
  };
  EXPECT_NE(line("contiguous").find("costs more than it saves: "), std::string::npos) << text;
  for (const char* good : {"none", "selective", "each"})
    EXPECT_EQ(line(good).find("costs more"), std::string::npos) << text;

  // What takes more memory may be faster for it.
  Compared small{.value = "small", .flops = 1}, large = small;
  large.value = "large";
  large.memory.bytes[0] = 1;
  EXPECT_NE(report("x", {small, large}).find("saves: small"), std::string::npos);
  small.tokens = 1;
  large.tokens = 2;
  EXPECT_EQ(report("x", {small, large}).find("saves: small"), std::string::npos);
  EXPECT_EQ(report("x", {small, large}).find("does not fit"), std::string::npos);
  large.fits = false;
  EXPECT_NE(report("x", {small, large}).find("does not fit"), std::string::npos);

  const std::string refused = report("x", {{.value = "a", .refused = "it cannot be"}});
  EXPECT_NE(refused.find("  a             it cannot be\n"), std::string::npos) << refused;
}

}  // namespace
}  // namespace megalith
