// Every profile in configs/hardware/ loads, and what is wrong with one is said.
#include "configs/hardware.h"

#include "configs/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/message_of.h"

namespace megalith {
namespace {

const std::string profiles = MEGALITH_SOURCE_DIR "/configs/hardware/";

TEST(HardwareProfiles, AllLoad) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(profiles)) {
    if (entry.path().extension() != ".toml") continue;
    const Hardware h = load_hardware(entry.path());
    names.insert(entry.path().stem());
    EXPECT_LT(h.device.reserved, h.device.memory / 4) << entry.path();
    EXPECT_LE(h.device.fp32, h.device.bf16) << entry.path();
    EXPECT_LE(h.network.link / static_cast<double>(h.device.per_node), h.node.link) << entry.path();
  }
  EXPECT_EQ(names, (std::set<std::string>{"a100_pcie", "dgx_a100", "dgx_b200", "dgx_h100", "l40s", "p4d.24xlarge",
                                          "p4de.24xlarge", "p5.48xlarge", "p5en.48xlarge", "rtx_4090"}));
}

TEST(HardwareProfiles, TheFirstHasItsNumbers) {
  const Hardware h = load_hardware(profiles + "p4d.24xlarge.toml");
  EXPECT_EQ(h.device.per_node, 8);
  EXPECT_EQ(h.device.kind, DeviceKind::gpu);
  EXPECT_EQ(h.device.bf16, 312);
  EXPECT_EQ(h.node.topology, Topology::switched);
  EXPECT_EQ(h.network.link, 50);
  Calibration calibrated;
  EXPECT_NE(h.calibrated.gemm, calibrated.gemm);
  calibrated.gemm = h.calibrated.gemm;
  EXPECT_EQ(h.calibrated, calibrated) << "the others keep their defaults";
  EXPECT_EQ(load_hardware(profiles + "l40s.toml").calibrated, Calibration{});
}

TEST(HardwareProfiles, AreKnownByTheirNamesInAnyFolder) {
  for (const auto& entry : std::filesystem::directory_iterator(profiles)) {
    if (entry.path().extension() != ".toml") continue;
    EXPECT_EQ(load_hardware(entry.path().stem()), load_hardware(entry.path())) << entry.path();
  }
  EXPECT_EQ(load_hardware("p4d"), load_hardware("p4d.24xlarge"));
  EXPECT_EQ(load_hardware("p5"), load_hardware("p5.48xlarge"));
  const std::string message = message_of([] { load_hardware("l40"); });
  EXPECT_NE(message.find("dgx_a100 dgx_b200 dgx_h100 l40s p4d.24xlarge"), std::string::npos) << message;
}

TEST(HardwareProfiles, ANumberThatIsFittedStaysInItsRange) {
  Hardware h;
  set_number(h, "calibrated.gemm", 0.5);
  EXPECT_EQ(number_of(h, "calibrated.gemm"), 0.5);
  EXPECT_NE(message_of([&] { set_number(h, "calibrated.gemm", 1.5); }).find("calibrated.gemm = 1.5"),
            std::string::npos);
  EXPECT_EQ(number_of(h, "calibrated.gemm"), 0.5);
  for (const char* name : {"calibrated.gemm", "stack.elementwise", "calibrated.launch"})
    for (const double value : {-1.0, 0.0, 0.25, 1e30}) EXPECT_NO_THROW(set_number(h, name, within_range(name, value)));
  EXPECT_EQ(within_range("calibrated.gemm", 0.25), 0.25);
  EXPECT_EQ(within_range("calibrated.gemm", 7), 1);
}

TEST(HardwareProfiles, TheTemplateIsAProfile) {
  Hardware h = load_hardware("dgx_h100");
  h.calibrated = {};
  EXPECT_EQ(parse_hardware(profile_template(), "template"), h);
}

TEST(HardwareProfiles, AmdIsNamedAsNotSupported) {
  for (const char* name : {"mi300", "MI300X", "mi250x"})
    EXPECT_NE(message_of([&] { load_hardware(name); }).find("AMD's GPUs are not supported"), std::string::npos) << name;
}

TEST(HardwareProfiles, ANodeMayHaveMoreDevices) {
  HardwareConfig config{.profile = "rtx_4090"};
  EXPECT_EQ(load_hardware(config).device.per_node, 1);
  config.devices_per_node = 4;
  EXPECT_EQ(load_hardware(config).device.per_node, 4);
}

TEST(HardwareProfiles, SayWhatIsWrong) {
  const auto message = [](const std::string& toml) { return message_of([&] { parse_hardware(toml, "x.toml"); }); };
  EXPECT_NE(message("[device]\nname = \"a\"\n")
                .find("x.toml lacks device.per_node, an integer (devices, 1 to 10000); device.memory, a number"),
            std::string::npos);
  EXPECT_NE(message("[device]\nname = \"a\"\n").find("network.latency"), std::string::npos) << "all are named at once";
  EXPECT_NE(message("[device]\nmemry = 3.0\n").find("did you mean `device.memory`?"), std::string::npos);
  EXPECT_NE(message("[node]\ntopology = \"star\"\n").find("x.toml:2: node.topology = \"star\" is not a choice"),
            std::string::npos)
      << message("[node]\ntopology = \"star\"\n");
  EXPECT_NE(message("[calibrated]\ngemm = 1.5\n").find("is out of range"), std::string::npos);
  EXPECT_NE(message_of([] { load_hardware("no/such.toml"); }).find("no/such.toml"), std::string::npos);
}

}  // namespace
}  // namespace megalith
