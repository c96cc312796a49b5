#include "trainer/train/metrics.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>
#include <utility>

#include "kernels/base/json.h"
#include "trainer/job/log.h"

namespace megalith {

namespace {

// None of a line that a death cut short.
std::optional<int64_t> step_of(const std::string& line) try {
  const nlohmann::json object = parse_json(line), &step = object.at("step");
  return step.is_number_integer() ? std::optional(step.get<int64_t>()) : std::nullopt;
} catch (const nlohmann::json::exception&) {
  return {};
}

// Lines of steps up to `completed`.
std::string lines_until(const std::string& path, int64_t completed) {
  if (std::error_code absent; !std::filesystem::exists(path, absent)) return "";
  std::istringstream in(read_file(path));
  std::string kept, line;
  while (std::getline(in, line)) {
    if (const std::optional<int64_t> step = step_of(line); step && *step <= completed) kept += line + "\n";
  }
  return kept;
}

// Keeps what an earlier start has written: nobody has asked to discard it.
void keep_earlier(const std::string& run_folder, const std::string& path) {
  if (lines_until(path, std::numeric_limits<int64_t>::max()).empty()) return;
  std::string kept;
  for (int k = 1; kept.empty() || std::filesystem::exists(kept); k++)
    kept = fmt::format("{}/metrics.earlier-{}.jsonl", run_folder, k);
  move_file(path, kept);
  log_info("the run starts from step 0; the metrics of an earlier start are now {}", kept);
}

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}m{:02}s", s / 60, s % 60);
}

const char* reason_in_a_word(Decision decision) {
  switch (decision) {
    case Decision::spike: return "norm";
    case Decision::overflow: return "overflow";
    default: return "not finite";
  }
}
}  // namespace

double bits_per_byte(double loss, int64_t tokens, int64_t bytes) {
  return loss * static_cast<double>(tokens) / static_cast<double>(bytes) / std::numbers::ln2;
}

Metrics::Metrics(const std::string& run_folder, bool rank0, int64_t completed, const Rates& rates)
    : active_(rank0), path_(run_folder + "/metrics.jsonl"), rates_(rates), first_step_(completed) {
  if (!active_) return;
  if (completed == 0) keep_earlier(run_folder, path_);
  write_file(path_, lines_until(path_, completed), {.replace = true});
  file_.emplace(path_, File::Use::append);
}

void Metrics::write(const std::string& line) { file_->append(line + "\n"); }

void Metrics::sync() {
  if (active_) file_->sync();
}

void Metrics::end_step(int64_t step, const StepScalars& scalars, double learning_rate, std::array<int64_t, 2> samples) {
  if (!active_) return;
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - std::exchange(begin_, now)).count();
  const double tokens_per_second = rates_.tokens_per_step / seconds;
  const double model_tflops = tokens_per_second * rates_.model_flops_per_token / rates_.devices / 1e12;
  const double hardware_tflops = rates_.hardware_flops_per_step / seconds / rates_.devices / 1e12;
  const double each = std::chrono::duration<double>(now - run_begin_).count() / static_cast<double>(step - first_step_);
  const std::string eta = duration_text(each * static_cast<double>(rates_.steps - step));
  bar_.clear();
  const auto utilization = [&](double tflops) {
    return rates_.peak_flops > 0 ? nlohmann::ordered_json(tflops * 1e12 / rates_.peak_flops) : nullptr;
  };
  const auto mfu = utilization(model_tflops), hfu = utilization(hardware_tflops);
  const auto mfu_full = utilization(model_tflops * rates_.full_flops_per_token / rates_.model_flops_per_token);
  const std::string shares = rates_.peak_flops > 0
                                 ? fmt::format("  MFU {:.1f} %, full {:.1f} %, HFU {:.1f} %", 100 * mfu.get<double>(),
                                               100 * mfu_full.get<double>(), 100 * hfu.get<double>())
                                 : "";
  log_info("step {}/{}  loss {:.4f}  norm {:.3f}{}  lr {:.2e}  {:.0f} tokens/s  {:.3f} TFLOP/s{}  ETA {}", step,
           rates_.steps, scalars.loss, scalars.grad_norm, scalars.skipped() ? "  skipped" : "", learning_rate,
           tokens_per_second, model_tflops, shares, eta);
  bar_.draw(static_cast<double>(step) / static_cast<double>(rates_.steps), "ETA " + eta);
  nlohmann::ordered_json memory;
  for (MemoryClass c : all_memory_classes) memory[name_of(c)] = rates_.memory.at(c, Place::device);
  nlohmann::ordered_json line{{"step", step},
                              {"loss", scalars.loss},
                              {"grad_norm", scalars.grad_norm},
                              {"learning_rate", learning_rate},
                              {"ranks", rates_.devices},
                              {"tokens", static_cast<int64_t>(rates_.tokens_per_step)},
                              {"step_seconds", seconds},
                              {"tokens_per_second", tokens_per_second},
                              {"model_tflops_per_device", model_tflops},
                              {"hardware_tflops_per_device", hardware_tflops},
                              {"mfu", mfu},
                              {"mfu_full", mfu_full},
                              {"hfu", hfu},
                              {"memory_bytes", memory}};
  if (samples[1] > samples[0]) line["samples"] = samples;
  if (scalars.skipped()) line["skipped"] = reason_in_a_word(scalars.decision);
  if (scalars.loss_scale > 0) line["loss_scale"] = scalars.loss_scale;
  write(json_text(line));
}

void Metrics::evaluation(int64_t step, double loss, int64_t tokens, int64_t bytes) {
  if (!active_) return;
  nlohmann::ordered_json line{{"step", step}, {"validation_loss", loss}, {"perplexity", std::exp(loss)}};
  bar_.clear();
  std::string bits;
  if (bytes > 0) {
    line["bits_per_byte"] = bits_per_byte(loss, tokens, bytes);
    bits = fmt::format("  {:.4f} bits per byte", bits_per_byte(loss, tokens, bytes));
  }
  log_info("step {}  validation loss {:.4f}{}", step, loss, bits);
  write(json_text(line));
}

}  // namespace megalith
