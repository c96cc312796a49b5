// Prints the times of attention's backward pass on Hopper by its model (attention_model.h): of the pass that GPUs have
// measured, of today's pass, and of today's with the other choice for heads that share keys.
#include "bench/attention_model.h"

#include <fmt/core.h>

int main() {
  using namespace megalith::bench;
  using megalith::cuda::attention::visit_us;
  fmt::print(
      "| us | balanced | measured | that pass, by the model | today's | its heads | the other choice |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const AttentionRow& row : attention_rows) {
    const int64_t heads = row.sequences * row.heads, shared = row.sequences * row.shared_heads;
    const auto us = [&](const AttentionPass& pass) {
      return visits_of(pass) * visit_us(row.size, true) +
             (pass.rooms > 0 ? 0 : rounding_us(heads, row.positions, row.size));
    };
    const double tiles = static_cast<double>(row.positions) / 128;
    const AttentionPass pass = pass_of(heads, shared, row.positions, row.size);
    fmt::print(
        "| {}: {} x {}, {}/{} heads of {} | {:.0f} | {} | {:.0f} | {:.0f} | {} | {} |\n", row.name, row.sequences,
        row.positions, row.heads, row.shared_heads, row.size,
        static_cast<double>(heads) * tiles * (tiles + 1) / 2 / 132 * visit_us(row.size, true),
        row.measured > 0 ? fmt::format("{:.0f}", row.measured) : "-",
        us(earlier_pass_of(heads, shared, row.positions, row.size)), us(pass),
        heads == shared ? "-"
        : pass.apart    ? "apart"
                        : "together",
        heads == shared ? "-" : fmt::format("{:.0f}", us(other_pass_of(heads, shared, row.positions, row.size))));
  }
}
