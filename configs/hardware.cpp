#include "configs/hardware.h"

#include <fmt/ranges.h>

#include "configs/config.h"
#include "configs/hardware_profiles.h"
#include "configs/reader.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>

namespace megalith {
namespace {

Table<Hardware> build_hardware_table() {
  Table<Hardware> table;

  Rows device(table, "device", &Hardware::device);
  device.word("name", &DeviceProfile::name, "As the driver calls it");
  device.word("kind", &DeviceProfile::kind, "Whether each rank has one, or all ranks of a node share it");
  device.number("per_node", &DeviceProfile::per_node, "devices", between(1, 1e4), "Devices of a node");
  device.number("memory", &DeviceProfile::memory, "GiB", above(0), "Memory that programs find");
  device.number("reserved", &DeviceProfile::reserved, "GiB", at_least(0),
                "Memory that the driver, NCCL and cuBLAS take");
  device.number("bandwidth", &DeviceProfile::bandwidth, "GB/s", above(0), "Of the device's memory");
  device.number("bf16", &DeviceProfile::bf16, "TFLOP/s", above(0), "Dense peak rate");
  device.number("fp16", &DeviceProfile::fp16, "TFLOP/s", above(0), "Dense peak rate");
  device.number("fp32", &DeviceProfile::fp32, "TFLOP/s", above(0), "Peak rate outside tensor cores");
  device.number("fp8", &DeviceProfile::fp8, "TFLOP/s", at_least(0), "Dense peak rate; 0: no products in 8 bits");
  device.number("multiprocessors", &DeviceProfile::multiprocessors, "", between(1, 1e4),
                "Multiprocessors that share a GEMM");
  device.number("generation", &DeviceProfile::generation, "", between(1, 100),
                "The major number of a GPU's compute capability: 8 for A100, 9 for H100");

  Rows host(table, "host", &Hardware::host);
  host.number("memory", &HostProfile::memory, "GiB", above(0), "Memory of a node");
  host.number("link", &HostProfile::link, "GB/s", above(0), "Between a device and the host, one way");

  Rows node(table, "node", &Hardware::node);
  node.number("link", &NodeProfile::link, "GB/s", above(0), "From a device to others of its node");
  node.word("topology", &NodeProfile::topology,
            "Whether any pair has the full rate, or all pairs share the host's bus");
  node.number("latency", &NodeProfile::latency, "us", at_least(0), "Of a step of a ring inside a node");

  Rows network(table, "network", &Hardware::network);
  network.number("link", &NetworkProfile::link, "GB/s", above(0), "From a node to others");
  network.number("latency", &NetworkProfile::latency, "us", at_least(0), "Of a step of a ring between nodes");

  Rows calibrated(table, "calibrated", &Hardware::calibrated);
  calibrated.number("gemm", &Calibration::gemm, "share", between(0.001, 1), "Share of the peak rate in large GEMMs");
  calibrated.number("memory", &Calibration::memory, "share", between(0.001, 1),
                    "Share of the bandwidth in elementwise ops");
  calibrated.number("node_link", &Calibration::node_link, "share", between(0.001, 1),
                    "Share of node.link in collectives");
  calibrated.number("network_link", &Calibration::network_link, "share", between(0.001, 1),
                    "Share of network.link in collectives");
  calibrated.number("collective_delay", &Calibration::collective_delay, "us", at_least(0), "Before the first byte");
  calibrated.number("overlap", &Calibration::overlap, "share", between(0, 1),
                    "Share of the shorter of two that overlapping loses");
  calibrated.number("launch", &Calibration::launch, "us", at_least(0), "The host's time for each op");
  calibrated.number("fork", &Calibration::fork, "us", at_least(0),
                    "Time of a CPU's threads for each loop that they share");
  calibrated.number("microbatch", &Calibration::microbatch, "ms", at_least(0),
                    "Time of a microbatch that is not accounted for elsewhere");
  calibrated.number("step", &Calibration::step, "ms", at_least(0),
                    "Time of a step that is not accounted for elsewhere");

  Rows stack(table, "stack", &Hardware::stack);
  stack.word("name", &StackProfile::name, "The program");
  stack.number("elementwise", &StackProfile::elementwise, "", above(0),
               "Time of memory-bound ops, relative to Megalith's");
  stack.word("attention", &StackProfile::attention, "How attention is computed");
  stack.number("attention_share", &StackProfile::attention_share, "share", between(0.001, 2),
               "Share of a GEMM's rate in fused attention");
  stack.number("tensor_exposed", &StackProfile::tensor_exposed, "share", between(0, 1),
               "Share of tensor-parallel sums that does not overlap");
  stack.number("accumulate_bytes", &StackProfile::accumulate_bytes, "bytes", at_least(0),
               "For each parameter and microbatch");
  stack.number("gradient_bytes", &StackProfile::gradient_bytes, "bytes", above(0),
               "For each parameter, in sums over ranks");
  stack.word("recomputes_outputs", &StackProfile::recomputes_outputs,
             "Recomputes the outputs of layers as well, which are unused");

  return table;
}

const Table<Hardware>& hardware_table() {
  static const Table<Hardware> table = build_hardware_table();
  return table;
}

// Numbers of the machines themselves.
bool is_of_machines(const Key& key) {
  return key.section != "calibrated" && key.section != "stack" && key.name() != "device.kind";
}
// The others have defaults.
bool is_required(const Key& key) {
  return is_of_machines(key) && key.name() != "device.fp8" && key.name() != "device.generation";
}

const FieldOf<Hardware>& real_field(const std::string& name) {
  const FieldOf<Hardware>* field = find_field(hardware_table(), name);
  CHECK(field && field->kind == Key::Kind::real,
        "{} is not a number of a hardware profile that can be fitted, as these can: {}", name,
        fmt::join(numbers_of("calibrated"), " "));
  return *field;
}

}  // namespace

double number_of(const Hardware& hardware, const std::string& name) {
  return std::get<double>(real_field(name).get(hardware));
}

void set_number(Hardware& hardware, const std::string& name, double value) {
  const FieldOf<Hardware>& field = real_field(name);
  const std::string wrong = value_problem(field, value);
  CHECK(wrong.empty(), "{} = {} {}", name, value, wrong);
  field.set(hardware, value);
}

double within_range(const std::string& name, double value) {
  const NumberRange& range = real_field(name).range;
  const double least = range.min_excluded ? std::nextafter(range.min, range.max) : range.min;
  return std::clamp(value, least, std::max(least, range.max));
}

std::vector<std::string> numbers_of(const std::string& section) {
  std::vector<std::string> names;
  for (const Key& key : hardware_table())
    if (key.section == section && key.kind == Key::Kind::real) names.push_back(key.name());
  return names;
}

Hardware parse_hardware(std::string_view toml, std::string_view source_name) {
  Reader reader(hardware_table(), source_name);
  reader.read(toml);
  std::vector<std::string> missing;
  for (const Key& key : hardware_table())
    if (is_required(key) && reader.where_set(key.name()).empty())
      missing.push_back(fmt::format("{}, {}", key.name(), key.expected()));
  CHECK(missing.empty(), "{} lacks {}; `megalith manual profile` prints a profile with all keys, to be edited",
        source_name, fmt::join(missing, "; "));
  return reader.record();
}

std::string profile_template() {
  constexpr std::string_view example = "dgx_h100";
  const Hardware hardware = load_hardware(std::string(example));
  std::string text = fmt::format(
                  "# The machines of a cluster, for `megalith plan` and `search`: hardware.profile = \"FILE\".\n"
                  "# These are the numbers of {}; replace them by those of your data sheets.\n",
                  example),
              section;
  for (const FieldOf<Hardware>& field : hardware_table()) {
    if (!is_of_machines(field)) continue;
    if (field.section != section) text += fmt::format("\n[{}]\n", section = field.section);
    text += fmt::format("{} = {}  # {}{}\n", field.key, toml_text(field.get(hardware)),
                        field.unit.empty() ? "" : fmt::format("{}; ", field.unit), field.help);
  }
  return text;
}

std::string known_profile_names() {
  std::vector<std::string_view> names;
  for (const KnownProfile& known : known_profiles()) names.push_back(known.name);
  return fmt::format("{}", fmt::join(names, " "));
}

Hardware load_hardware(const std::string& profile) {
  if (std::error_code absent; std::filesystem::exists(profile, absent))
    return parse_hardware(read_configuration(profile), profile);
  for (const KnownProfile& known : known_profiles()) {
    const std::string_view name = known.name;
    if (profile == name || profile == name.substr(0, name.find('.')))
      return parse_hardware(known.toml, fmt::format("the profile {}", name));
  }
  std::string in_lower_case = profile;
  std::ranges::transform(in_lower_case, in_lower_case.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const std::string_view amd : {"mi200", "mi210", "mi250", "mi300", "mi308", "mi325", "mi350", "mi355", "radeon"})
    CHECK(!in_lower_case.starts_with(amd),
          "hardware.profile = {}: AMD's GPUs are not supported, since the kernels are written in CUDA; known profiles "
          "are {}",
          profile, known_profile_names());
  FAIL(
      "hardware.profile = {} is neither the path of a file nor a known profile ({}). `megalith measure` writes one for "
      "this machine",
      profile, known_profile_names());
}

Hardware load_hardware(const HardwareConfig& config) {
  Hardware hardware = load_hardware(config.profile);
  if (config.devices_per_node > 0) hardware.device.per_node = config.devices_per_node;
  return hardware;
}

}  // namespace megalith
