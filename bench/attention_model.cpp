// Prints the times of attention's passes on Hopper by their models (attention_forward_model.h,
// attention_backward_model.h): of the passes that GPUs have measured, of today's passes, and of today's backward pass
// with the other choice for heads that share keys.
#include <fmt/core.h>

#include "bench/attention_backward_model.h"
#include "bench/attention_forward_model.h"

namespace megalith::bench {
namespace {

std::string or_none(double us) { return us > 0 ? fmt::format("{:.0f}", us) : "-"; }
std::string shape_of(const AttentionRow& row) {
  return fmt::format("{}: {} x {}, {}/{} heads of {}", row.name, row.sequences, row.positions, row.heads,
                     row.shared_heads, row.size);
}

void print_forward() {
  fmt::print("| forward, us | measured | that pass, by the model | today's | TFLOP/s |\n|---|---|---|---|---|\n");
  for (const AttentionRow& row : attention_rows) {
    const double us = forward_row_us(row, visit_us(row.size, Turns::products));
    const double flops = 2.0 * static_cast<double>(row.shape().heads * row.size * row.positions * (row.positions + 1));
    fmt::print("| {} | {} | {:.0f} | {:.0f} | {:.0f} |\n", shape_of(row), or_none(row.forward),
               forward_row_us(row, visit_us(row.size, Turns::softmax)), us, flops / us / 1e6);
  }
}

void print_backward() {
  fmt::print(
      "| backward, us | balanced | measured | that pass, by the model | today's | its heads | the other choice |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const AttentionRow& row : attention_rows) {
    const AttentionShape shape = row.shape();
    const double visit = cuda::attention::backward_visit_us(row.size);
    const auto us = [&](const BackwardPass& pass) {
      return visits_of(pass) * visit + (pass.rooms > 0 ? 0 : rounding_us(shape));
    };
    const double tiles = static_cast<double>(row.positions) / 128;
    const BackwardPass pass = pass_of(shape);
    const bool shares = shape.heads > shape.shared_heads;
    fmt::print("| {} | {:.0f} | {} | {:.0f} | {:.0f} | {} | {} |\n", shape_of(row),
               static_cast<double>(shape.heads) * tiles * (tiles + 1) / 2 / cuda::attention::processors * visit,
               or_none(row.backward), us(earlier_pass_of(shape)), us(pass),
               !shares      ? "-"
               : pass.apart ? "apart"
                            : "together",
               !shares ? "-" : fmt::format("{:.0f}", us(other_pass_of(shape))));
  }
}

}  // namespace
}  // namespace megalith::bench

int main() {
  megalith::bench::print_forward();
  fmt::print("\n");
  megalith::bench::print_backward();
}
