#include "trainer/planner/compare.h"

#include <algorithm>
#include <sstream>

#include "trainer/model/model.h"
#include "trainer/planner/readable.h"
#include "trainer/planner/verdict.h"

namespace megalith {

namespace {

bool is_no_worse(const Compared& a, const Compared& b) {
  const int64_t bytes = a.memory.total(MemoryPlace::device), others = b.memory.total(MemoryPlace::device);
  return a.refused.empty() && bytes <= others && a.on_host <= b.on_host && a.flops <= b.flops && a.tokens >= b.tokens &&
         (bytes < others || a.flops < b.flops);
}

}  // namespace

Comparison comparison_of(const std::string& text, const Config& config) {
  Comparison found;
  const size_t equals = text.find('=');
  found.key = text.substr(0, equals);
  if (equals != std::string::npos) {
    std::istringstream values(text.substr(equals + 1));
    for (std::string value; std::getline(values, value, ',');) found.values.push_back(value);
  } else {
    for (const std::string& choice : choices_of(found.key)) {
      if (choice != "group_N") found.values.push_back(choice);
      for (int64_t n = 2; choice == "group_N" && n < config.model.layers; n *= 2)
        found.values.push_back(fmt::format("group_{}", n));
    }
    CHECK(!found.values.empty(), "--compare {}: it has no list of choices; give values, as in --compare {}=1,2,4", text,
          text);
  }
  return found;
}

Compared compare(const std::string& value, const Config& config, const std::optional<Hardware>& hardware,
                 int num_ranks) {
  Compared found{.value = value};
  const StageDryRuns dry_runs = dry_run_stages(config, hardware.value_or(Hardware{}), num_ranks, true);
  found.memory =
      *std::ranges::max_element(dry_runs.memory, {}, [](const auto& m) { return m.total(MemoryPlace::device); });
  const int64_t T = config.batch.sequence_length;
  found.flops = dry_runs.step.hardware_flops / (static_cast<double>(config.batch.global_batch_size * T) *
                                                model_flops_per_token(config.model, T, true));
  for (const MemorySizes& sizes : dry_runs.memory)
    found.on_host = std::max(found.on_host, sizes.total(MemoryPlace::host));
  if (!hardware) return found;
  found.tokens = predict(config, *hardware, dry_runs).tokens_per_second;
  found.fits =
      gib(device_bytes(config, *hardware, found.memory)) + hardware->device.reserved <= hardware->device.memory &&
      gib(config.parallel.ranks_per_node * found.on_host) <= hardware->host.memory;
  return found;
}

std::string report(const std::string& key, std::vector<Compared> all) {
  for (Compared& c : all)
    for (const Compared& other : all)
      if (c.refused.empty() && c.no_better.empty() && is_no_worse(other, c)) c.no_better = other.value;
  const bool timed = std::ranges::any_of(all, [](const Compared& c) { return c.tokens > 0; });
  std::string text = fmt::format("{}: GiB of the fullest rank, and hardware over model FLOPs\n  {:<14}", key, "");
  for (MemoryClass c : classes_on(MemoryPlace::device)) text += fmt::format("{:>15}", name_of(c));
  text += fmt::format("{:>10}{:>10}{:>8}{}\n", "total", "on host", "FLOPs", timed ? "   tokens/s" : "");
  for (const Compared& c : all) {
    text += fmt::format("  {:<14}", c.value);
    if (!c.refused.empty()) {
      text += c.refused + "\n";
      continue;
    }
    for (MemoryClass m : classes_on(MemoryPlace::device))
      text += fmt::format("{:>15.3f}", gib(c.memory.at(m, MemoryPlace::device)));
    text +=
        fmt::format("{:>10.3f}{:>10.3f}{:>8.3f}", gib(c.memory.total(MemoryPlace::device)), gib(c.on_host), c.flops);
    if (timed) text += fmt::format("{:>11}", readable(c.tokens));
    if (!c.fits) text += "  does not fit";
    if (!c.no_better.empty())
      text += fmt::format("  costs more than it saves: {} needs no more memory, and no more FLOPs", c.no_better);
    text += "\n";
  }
  return text;
}

}  // namespace megalith
