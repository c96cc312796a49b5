#include "trainer/train/measured.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace megalith {

nlohmann::ordered_json to_json(const Accounts& accounts) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (size_t a = 0; a < num_accounts; a++)
    if (accounts[a] > 0) json[name_of(static_cast<Account>(a))] = accounts[a];
  return json;
}

void add_fields(nlohmann::ordered_json& line, const Measured& measured) {
  if (measured.time) {
    line["time"] = to_json(measured.time->breakdown);
    line["slowest_rank"] = measured.time->slowest;
  }
  if (measured.memory)
    line["memory_measured"] = {{"resident", static_cast<int64_t>(measured.memory->resident)},
                               {"device", static_cast<int64_t>(measured.memory->device)},
                               {"host", static_cast<int64_t>(measured.memory->on_host)}};
}

std::optional<HostStats> fullest(const std::vector<HostStats>& ranks) {
  if (ranks.empty()) return {};
  HostStats most;
  for (const HostStats& rank : ranks) {
    most.resident = std::max(most.resident, rank.resident);
    most.device = std::max(most.device, rank.device);
    most.on_host = std::max(most.on_host, rank.on_host);
  }
  return most;
}

std::string shares_in_words(const Accounts& breakdown) {
  std::array<size_t, num_accounts> order{};
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t a) { return breakdown[a]; });
  std::string text;
  for (const size_t a : order)
    if (const double percent = 100 * breakdown[a] / total(breakdown); percent >= 0.05)
      text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", name_of(static_cast<Account>(a)), percent);
  return text;
}

}  // namespace megalith
