// What was measured of a step, and the fields of metrics.jsonl that tell it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "trainer/step/step_clock.h"
#include "trainer/step/trainer.h"

namespace megalith {

struct Measured {
  // Of steps that were measured.
  struct Time {
    Accounts accounts{};  // mean over the ranks; of evaluations and checkpoints since the step before as well
    size_t slowest = 0;   // the rank that waited least for others
  };
  std::optional<Time> time{};
  // Bytes, each on the rank that takes most: in physical memory; of the device; by our tensors on the host. In the cpu
  // world the device is the node's memory, and its bytes are those of our tensors.
  std::optional<HostStats> memory{};
  // When the step ended and the next began, by StepClock::host_now(); in the cpu world the reading that `time` goes by.
  double ended = StepClock::host_now();
};

// "time": {ACCOUNT: seconds, ...}, "slowest_rank" and "memory_measured": {"resident", "device", "host"}, as far as
// known.
void add_fields(nlohmann::ordered_json& line, const Measured& measured);

// The memory of the fullest rank.
std::optional<HostStats> fullest(const std::vector<HostStats>& ranks);

// "GEMM 61.2 %, ...", most first, without what is less than 0.05 %.
std::string shares_in_words(const Accounts& accounts);

}  // namespace megalith
