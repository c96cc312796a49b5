// The measurements of a step, which are fields of metrics.jsonl.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "trainer/step/step_clock.h"
#include "trainer/step/trainer.h"

namespace megalith {

struct Measured {
  struct Time {
    Accounts breakdown{};  // mean over the ranks, with evaluations, texts and checkpoints since the previous step
    size_t slowest = 0;    // the rank that waited least for others
  };
  std::optional<Time> time{};
  // Each number is in bytes, the maximum over the ranks. In the cpu world `device` counts the tensors.
  std::optional<HostStats> memory{};
  // The step ended at this StepClock::host_now(): in the cuda world on the GPU; in the cpu world `time` ends there too.
  double ended = StepClock::host_now();
};

// Returns {ACCOUNT: seconds, ...}, without those that took no time.
nlohmann::ordered_json to_json(const Accounts& accounts);

// Adds "time": {ACCOUNT: seconds, ...}, "slowest_rank" and "memory_measured": {"resident", "device", "host"}, if known.
void add_fields(nlohmann::ordered_json& line, const Measured& measured);

// Returns the maximum of each number over the ranks.
std::optional<HostStats> fullest(const std::vector<HostStats>& ranks);

// Returns "GEMM 61.2 %, ...", descending, without shares below 0.05 %.
std::string shares_in_words(const Accounts& breakdown);

}  // namespace megalith
