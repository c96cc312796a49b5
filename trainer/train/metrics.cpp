#include "trainer/train/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>
#include <sstream>
#include <utility>

#include "kernels/system/counted.h"
#include "kernels/system/json.h"
#include "trainer/log/log.h"
#include "trainer/machine/terminal.h"

namespace megalith {

namespace {

std::optional<int64_t> steps_at(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_number_integer() || found->get<int64_t>() < 0) return {};
  return found->get<int64_t>();
}

// Returns whether a line belongs to the first `completed` steps. A start's line does if one of its steps does; a cut
// line does not.
bool belongs(const std::string& line, int64_t completed) try {
  const nlohmann::json object = parse_json(line);
  if (!object.is_object()) return false;
  if (const auto start = object.find("start"); start != object.end()) {
    const std::optional<int64_t> before = steps_at(*start, "completed_steps");
    return before && *before < completed;
  }
  const std::optional<int64_t> step = steps_at(object, "step");
  return step && *step <= completed;
} catch (const nlohmann::json::exception&) {
  return false;
}

std::vector<std::string> lines_in(const std::string& path) {
  std::vector<std::string> lines;
  if (std::error_code absent; !std::filesystem::exists(path, absent)) return lines;
  std::istringstream in(read_file(path));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string lines_until(const std::string& path, int64_t completed) {
  std::string kept;
  for (const std::string& line : lines_in(path))
    if (belongs(line, completed)) kept += line + "\n";
  return kept;
}

// Returns how many steps lack a line between the first line and the last completed step.
int64_t steps_missing(const std::string& lines, int64_t completed) {
  std::set<int64_t> steps;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);)
    if (const nlohmann::json object = parse_json(line); object.contains("loss"))
      if (const auto step = steps_at(object, "step")) steps.insert(*step);
  return steps.empty() ? 0 : completed - *steps.begin() + 1 - static_cast<int64_t>(steps.size());
}

void warn_of_disk(const std::string& trouble) { log_warning("{}", trouble); }

// Returns whether the line was not written by a run. A cut line of a run begins as an object.
bool is_of_another(const std::string& line) try {
  if (line.find_first_not_of(" \t\r") == std::string::npos) return false;
  parse_json(line);
  return !belongs(line, std::numeric_limits<int64_t>::max());
} catch (const nlohmann::json::exception&) {
  return line.front() != '{' && line.front() != '\0';
}

// Renames files of an earlier start if this one begins at step 0, and files with lines that no run has written.
void keep_earlier(const std::string& run_folder, const std::string& path, int64_t completed) {
  const bool of_another = std::ranges::any_of(lines_in(path), is_of_another);
  if (!of_another && (completed > 0 || lines_until(path, std::numeric_limits<int64_t>::max()).empty())) return;
  const auto name = [&](int k) { return fmt::format("{}/metrics.earlier-{}.jsonl", run_folder, k); };
  const auto events = [&](int k) { return fmt::format("{}/tensorboard.earlier-{}", run_folder, k); };
  int k = 1;
  while (std::filesystem::exists(name(k)) || std::filesystem::exists(events(k))) k++;
  move_file(path, name(k));
  if (of_another) log_info("{} had lines that no run has written and is now {}", path, name(k));
  if (completed > 0) return;
  if (std::filesystem::exists(run_folder + "/tensorboard")) move_file(run_folder + "/tensorboard", events(k));
  log_info("the run starts from step 0; the metrics of an earlier start are now {}", name(k));
}

double unix_time() {
  using namespace std::chrono;
  return static_cast<double>(duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count()) / 1000;
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
    case Decision::nothing: return "no token counts";
    default: return "not finite";
  }
}
}  // namespace

double bits_per_byte(double loss, int64_t tokens, int64_t bytes) {
  return loss * static_cast<double>(tokens) / static_cast<double>(bytes) / std::numbers::ln2;
}

Metrics::Metrics(const std::string& run_folder, bool rank0, int64_t completed, const Rates& rates, RunHeader header,
                 const Reporting& reporting)
    : active_(rank0),
      folder_(run_folder),
      rates_(rates),
      header_(std::move(header)),
      console_pace_(reporting.log_every, stdout_is_terminal() ? 5 : 10, stdout_is_terminal() ? 5 : 60),
      file_pace_(reporting.log_every, 10, 60),
      first_step_(completed),
      tokens_(rates.tokens_before) {
  if (!active_) return;
  const std::string path = folder_ + "/metrics.jsonl";
  const std::string kept = lines_until(path, completed);
  keep_earlier(folder_, path, completed);
  if (const int64_t missing = steps_missing(kept, completed); missing > 0)
    log_warning("{} lacks {} of the {} that the run resumes from, lost by a full disk or a power failure", path,
                counted(missing, "step"), completed);
  write_file(path, kept, {.replace = true});
  file_.emplace(path, true, warn_of_disk);
  if (reporting.tensorboard) events_.emplace(folder_ + "/tensorboard", completed, unix_time());
  before_console_lines([this] { bar_.clear(); });  // last, since a constructor that throws runs no destructor
}

Metrics::~Metrics() {
  if (active_) before_console_lines({});
}

nlohmann::ordered_json Metrics::start_line() const {
  const auto by_class = [&](MemoryPlace place) {
    nlohmann::ordered_json memory;
    for (MemoryClass c : classes_on(place)) memory[name_of(c)] = rates_.memory.at(c, place);
    return memory;
  };
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  nlohmann::ordered_json start{{"completed_steps", first_step_},
                               {"unix_time", unix_time()},
                               {"host", host},
                               {"version", header_.version},
                               {"config_digest", header_.config_digest},
                               {"ranks", rates_.devices},
                               {"device", header_.device},
                               {"threads", header_.threads},
                               {"layout", header_.layout},
                               {"sharding_strategy", header_.sharding_strategy},
                               {"compute", header_.compute},
                               {"parameters", header_.parameters},
                               {"steps", rates_.steps},
                               {"tokens_so_far", rates_.tokens_before},
                               {"tokens", static_cast<int64_t>(rates_.tokens_per_step)},
                               {"model_flops_per_token", rates_.model_flops_per_token},
                               {"hardware_flops_per_step", rates_.hardware_flops_per_step},
                               {"memory_bytes", by_class(MemoryPlace::device)}};
  if (!header_.command.empty()) start["command"] = header_.command;
  if (!header_.fingerprint.tokenizer.empty()) {
    start["tokenizer"] = header_.fingerprint.tokenizer;
    start["tokenizer_name"] = header_.fingerprint.tokenizer_name;
  }
  if (!header_.fingerprint.sources.empty()) start["data"] = to_json(header_.fingerprint).at("sources");
  if (!header_.validation.empty()) start["held_out"] = header_.validation;
  if (!header_.resumed_from.empty()) start["resumed_from"] = header_.resumed_from;
  if (!header_.other_decay.empty()) start["other_decay"] = header_.other_decay;
  if (rates_.peak_flops > 0) start["peak_flops"] = rates_.peak_flops;
  if (rates_.memory.total(MemoryPlace::host) > 0) start["host_memory_bytes"] = by_class(MemoryPlace::host);
  if (rates_.process.total() > 0)
    for (const auto& [name, bytes] : rates_.process.parts()) start["process_memory_bytes"][name] = bytes;
  return {{"start", start}};
}

void Metrics::write(nlohmann::ordered_json line) {
  line["seconds_since_start"] = StepClock::host_now() - run_begin_;
  line["unix_time"] = unix_time();
  // Write both at once, so that every start has a step.
  const std::string before = std::exchange(started_, true) ? "" : json_text_of_bytes(start_line()) + "\n";
  file_->append(before + json_text(line) + "\n", before.empty() ? 1 : 2);
  if (events_) events_->append(line);
}

void Metrics::sync() {
  if (!active_) return;
  log_last_step();
  for (const std::string& trouble : {sync_log(), file_->sync(), events_ ? events_->sync() : ""})
    if (!trouble.empty()) log_warning("{}", trouble);
}

void Metrics::log_last_line(bool console, bool file) {
  constexpr size_t any = std::numeric_limits<size_t>::max();
  if (console)
    log_line(fitted(last_line_, stdout_is_terminal() ? static_cast<size_t>(terminal_columns()) : any), LogTo::console);
  if (file) log_line(fitted(last_line_, any), LogTo::file);
  on_console_ |= console;
  in_file_ |= file;
}

void Metrics::log_last_step() {
  if (active_) log_last_line(!on_console_, !in_file_);
}

void Metrics::end_step(const StepReport& report) {
  if (!active_) return;
  const auto& [step, scalars, learning_rate, samples, measured] = report;
  const double seconds = measured.ended - std::exchange(begin_, measured.ended);
  const double tokens_per_second = rates_.tokens_per_step / seconds;
  const double model_tflops = tokens_per_second * rates_.model_flops_per_token / rates_.devices / 1e12;
  const double hardware_tflops = rates_.hardware_flops_per_step / seconds / rates_.devices / 1e12;
  const double age = measured.ended - run_begin_;
  const double each = age / static_cast<double>(step - first_step_);
  const std::string eta = duration_text(each * static_cast<double>(rates_.steps - step));
  const auto utilization = [&](double tflops) {
    return rates_.peak_flops > 0 ? nlohmann::ordered_json(tflops * 1e12 / rates_.peak_flops) : nullptr;
  };
  const auto mfu = utilization(model_tflops), hfu = utilization(hardware_tflops);
  const auto mfu_full = utilization(model_tflops * rates_.full_flops_per_token / rates_.model_flops_per_token);
  const LinePart number{fmt::format("step {}/{}", step, rates_.steps)},
      loss{scalars.decision == Decision::nothing ? "no loss" : fmt::format("loss {:.4f}", scalars.loss)},
      rate{fmt::format("{:.0f} tokens/s", tokens_per_second), 1}, left{"ETA " + eta};
  last_line_ = {number, loss, {fmt::format("norm {:.3f}", scalars.grad_norm), 2}};
  if (scalars.skipped()) last_line_.push_back({"skipped"});
  last_line_.insert(
      last_line_.end(),
      {{fmt::format("lr {:.2e}", learning_rate), 3}, rate, {fmt::format("{:.3f} TFLOP/s", model_tflops), 5}});
  if (rates_.peak_flops > 0)
    last_line_.push_back({fmt::format("MFU {:.1f} %, full {:.1f} %, HFU {:.1f} %", 100 * mfu.get<double>(),
                                      100 * mfu_full.get<double>(), 100 * hfu.get<double>()),
                          4});
  last_line_.push_back(left);
  on_console_ = in_file_ = false;
  const bool console = console_pace_.due(step, age), file = file_pace_.due(step, age);
  log_last_line(console || scalars.skipped(), file || scalars.skipped());
  if (!scalars.skipped())  // more lines about a skipped step follow
    bar_.draw(static_cast<double>(step) / static_cast<double>(rates_.steps), {number, loss, rate, left});
  tokens_ += static_cast<int64_t>(rates_.tokens_per_step);
  nlohmann::ordered_json line{{"step", step},
                              {"loss", scalars.loss},
                              {"grad_norm", scalars.grad_norm},
                              {"learning_rate", learning_rate},
                              {"tokens_so_far", tokens_},
                              {"step_seconds", seconds},
                              {"tokens_per_second", tokens_per_second},
                              {"model_tflops_per_device", model_tflops},
                              {"hardware_tflops_per_device", hardware_tflops},
                              {"mfu", mfu},
                              {"mfu_full", mfu_full},
                              {"hfu", hfu}};
  if (rates_.masked) line["counted_tokens"] = scalars.counted;
  if (samples.size() > 0) line["samples"] = {samples.begin, samples.end};
  if (scalars.skipped()) line["skipped"] = reason_in_a_word(scalars.decision);
  if (scalars.loss_scale > 0) line["loss_scale"] = scalars.loss_scale;
  add_fields(line, measured);
  write(std::move(line));
}

void Metrics::evaluation(int64_t step, const std::vector<EvaluatedSet>& sets) {
  if (!active_) return;
  log_last_step();
  const auto bits_of = [](const EvaluatedSet& set) { return bits_per_byte(set.loss, set.tokens, set.bytes); };
  for (const EvaluatedSet& set : sets)
    log_info("step {}  validation loss{} {:.4f}{}", step, set.name.empty() ? "" : " of " + set.name, set.loss,
             set.bytes > 0 ? fmt::format("  {:.4f} bits per byte", bits_of(set)) : "");
  const EvaluatedSet& first = sets.front();
  nlohmann::ordered_json line{{"step", step},
                              {"validation_loss", first.loss},
                              {"perplexity", std::exp(first.loss)},
                              {"tokens_so_far", tokens_}};
  if (first.bytes > 0) line["bits_per_byte"] = bits_of(first);
  for (const EvaluatedSet& set : sets) {
    if (set.name.empty()) continue;
    nlohmann::ordered_json& its = line["sets"][set.name] = {{"loss", set.loss}};
    if (set.bytes > 0) its["bits_per_byte"] = bits_of(set);
  }
  write(std::move(line));
}

void Metrics::time_after(int64_t step, const Accounts& accounts) {
  if (!active_ || total(accounts) == 0) return;
  write({{"step", step}, {"time_after", to_json(accounts)}});
  // No later checkpoint does.
  if (const std::string trouble = file_->sync(); !trouble.empty()) log_warning("{}", trouble);
}

void Metrics::samples(int64_t step, const std::vector<SampledText>& samples) {
  if (!active_) return;
  log_last_step();
  nlohmann::ordered_json texts = nlohmann::ordered_json::array();
  for (const SampledText& sample : samples) {
    // A text may end inside a character.
    const std::string prompt = json_text_of_bytes(sample.prompt), text = json_text_of_bytes(sample.text);
    log_info("step {}  sample after {}: {}{}", step, prompt, text,
             sample.finite ? "" : ", which ends where the logits are not finite");
    nlohmann::ordered_json& line = texts.emplace_back();
    line["prompt"] = parse_json(prompt);
    line["text"] = parse_json(text);
    if (!sample.finite) line["not_finite"] = true;
  }
  write({{"step", step}, {"texts", std::move(texts)}});
}

}  // namespace megalith
