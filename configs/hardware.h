// Hardware: the machines of a job as data, for planning. A profile is a TOML file in which each number has its source.
// [hardware] of a Config names one: a file, or one of configs/hardware/, by its name.
//
// [device], [host], [node] and [network] come from data sheets, and all their keys are required. [calibrated] has the
// share of these rates that programs reach: ten numbers that a user's own measured runs can replace. Their defaults are
// fitted to published runs by bench/published.py, except a CPU's fork, which `megalith measure` finds. [stack]
// describes a training program other than Megalith, to compare predictions with published results. Errors name
// file:line, the key, the value and the remedy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "configs/choices.h"

namespace megalith {

struct HardwareConfig;  // configs/config.h

enum class Topology { switched, host };  // any pair at full rate, or through the host's bus
constexpr auto words_of(Topology) { return words("switch", "host"); }
// own: Megalith's kernels, which have a model of their own on Hopper and are predicted as `fused` elsewhere.
enum class AttentionKernel { own, fused, fused_softmax, unfused };
constexpr auto words_of(AttentionKernel) { return words("own", "fused", "fused_softmax", "unfused"); }

// A gpu belongs to one rank. The cores of a cpu are one device, which all ranks of its node share.
enum class DeviceKind { gpu, cpu };
constexpr auto words_of(DeviceKind) { return words("gpu", "cpu"); }

struct DeviceProfile {
  std::string name;  // as the driver names it
  DeviceKind kind = DeviceKind::gpu;
  int64_t per_node = 0;
  double memory = 0;          // GiB
  double reserved = 0;        // GiB that driver, NCCL and cuBLAS take
  double bandwidth = 0;       // GB/s of its memory
  double bf16 = 0, fp16 = 0;  // TFLOP/s, dense
  double fp32 = 0;            // TFLOP/s, outside tensor cores
  double fp8 = 0;             // TFLOP/s, dense, with sums in f32; 0: no products in 8 bits
  int64_t multiprocessors = 0;
  int64_t generation = 8;  // the compute capability's major number, 9 for Hopper, by which kernels are chosen
  bool operator==(const DeviceProfile&) const = default;
};

struct HostProfile {
  double memory = 0;  // GiB a node
  double link = 0;    // GB/s between a device and the host, one way
  bool operator==(const HostProfile&) const = default;
};

struct NodeProfile {
  double link = 0;  // GB/s from a device to others of its node
  Topology topology = Topology::switched;
  double latency = 0;  // us for each step of a ring
  bool operator==(const NodeProfile&) const = default;
};

struct NetworkProfile {
  double link = 0;     // GB/s from a node to others
  double latency = 0;  // us for each step of a ring
  bool operator==(const NetworkProfile&) const = default;
};

struct Calibration {
  double gemm = 0.79;             // share of the peak rate that a large GEMM reaches
  double memory = 0.782;          // share of the memory's bandwidth that an elementwise op reaches
  double node_link = 0.79;        // share of the link's rate that a collective inside a node reaches
  double network_link = 0.78;     // likewise of the network's link, between nodes
  double collective_delay = 155;  // us before the first byte of a collective moves
  double overlap = 0.52;          // share of the shorter one by which a transfer and concurrent work slow each other
  double launch = 6;              // us that the host needs to launch an op
  double fork = 0;                // us to start and join a CPU rank's threads for a loop
  double microbatch = 1.18;       // ms a microbatch, not accounted for elsewhere
  double step = 17.5;             // ms a step, not accounted for elsewhere
  bool operator==(const Calibration&) const = default;
};

struct StackProfile {
  std::string name = "Megalith";
  double elementwise = 1;  // time of a layer's memory-bound ops, relative to Megalith's
  AttentionKernel attention = AttentionKernel::own;
  double attention_share = 0.55;    // share of a GEMM's rate that fused attention over a long sequence reaches
  double tensor_exposed = 1;        // share of a tensor-parallel all-reduce that does not overlap with other work
  double accumulate_bytes = 0;      // bytes a parameter and microbatch, for adding gradients outside of their GEMM
  double gradient_bytes = 4;        // bytes a parameter, of gradients sent to a reduction
  bool recomputes_outputs = false;  // also recomputes the outputs of layers, which are unused; Megalith does not
  bool operator==(const StackProfile&) const = default;
};

struct Hardware {
  DeviceProfile device;
  HostProfile host;
  NodeProfile node;
  NetworkProfile network;
  Calibration calibrated;
  StackProfile stack;
  bool operator==(const Hardware&) const = default;
};

// profile: a file, or the name of a known profile, "p4d.24xlarge" or "p4d". A file of that name wins.
Hardware load_hardware(const std::string& profile);
// Returns the machines of [hardware]: its profile, with as many devices a node as it says.
Hardware load_hardware(const HardwareConfig& config);
// Returns "dgx_a100 l40s ...".
std::string known_profile_names();
// Returns the text of a profile with every required key and its meaning, which a user edits for another cluster.
std::string profile_template();
Hardware parse_hardware(std::string_view toml, std::string_view source_name);

// Returns a number of a profile by its name, as "calibrated.gemm". Error: unknown name or invalid number.
double number_of(const Hardware& hardware, const std::string& name);
void set_number(Hardware& hardware, const std::string& name, double value);
// Returns the nearest value in its range.
double within_range(const std::string& name, double value);
// Returns every number of a section, by name.
std::vector<std::string> numbers_of(const std::string& section);

}  // namespace megalith
