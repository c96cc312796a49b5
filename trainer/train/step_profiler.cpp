#include "trainer/train/step_profiler.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "kernels/stream/device.h"
#include "kernels/system/json.h"
#include "trainer/job/agreement.h"
#include "trainer/log/log.h"
#include "trainer/machine/machine.h"

namespace megalith {

namespace {

constexpr const char* step_prefix = "step ";

// Writes each name once.
std::string text_of(const std::vector<Span>& spans) {
  nlohmann::json names = nlohmann::json::array(), rows = nlohmann::json::array();
  std::map<std::string, size_t> places;
  for (const Span& span : spans) {
    const auto [found, is_new] = places.try_emplace(span.name, places.size());
    if (is_new) names.push_back(span.name);
    rows.push_back({found->second, span.lane, span.begin, span.end, static_cast<int>(span.account)});
  }
  return to_cbor({{"names", std::move(names)}, {"spans", std::move(rows)}});
}

std::vector<Span> spans_of(const std::string& text) {
  const nlohmann::json all = from_cbor(text);
  std::vector<Span> spans;
  for (const nlohmann::json& row : all.at("spans"))
    spans.push_back({all.at("names").at(row.at(0).get<size_t>()).get<std::string>(), row.at(1).get<int>(),
                     row.at(2).get<double>(), row.at(3).get<double>(), static_cast<Account>(row.at(4).get<int>())});
  return spans;
}

// Repeats the forecast for each measured step, from the step's beginning or the end of the previous forecast.
std::vector<TraceProcess> repeated(std::vector<TraceProcess> of_a_step, const std::vector<Span>& made) {
  double length = 0;
  for (const TraceProcess& process : of_a_step)
    for (const Span& span : process.spans) length = std::max(length, span.end);
  std::vector<double> begins;
  for (const Span& step : made)
    if (step.name.starts_with(step_prefix))
      begins.push_back(begins.empty() ? step.begin : std::max(step.begin, begins.back() + length));
  for (TraceProcess& process : of_a_step) {
    const std::vector<Span> once = std::exchange(process.spans, {});
    for (const double begin : begins)
      for (Span span : once) {
        span.begin += begin;
        span.end += begin;
        process.spans.push_back(std::move(span));
      }
  }
  return of_a_step;
}

// Returns the GPU's memory in use by all processes.
double device_bytes() {
  const device::Properties gpu = device::properties();
  return static_cast<double>(gpu.memory - gpu.free);
}

void wait_for(CUevent_st* event) {
  while (!device::passed(event)) std::this_thread::yield();
}

}  // namespace

StepProfiler::StepProfiler(const Config& config, const Session& session, RankContext& work, const Forecast& forecast)
    : config_(config),
      session_(session),
      work_(work),
      clock_(work.runtime->stream),
      traced_(step_range(config.train.trace_steps)) {
  if (traced_ && session.rank() == 0 && forecast && !config.hardware.profile.empty())
    predicted_ = forecast(work.layout.config, session.size());
}

HostStats StepProfiler::stats() {
  const MemorySizes peaks = work_.runtime->memory.peaks();
  return {.so_far = on_gpu() ? Accounts{} : clock_.so_far(),
          .resident = static_cast<double>(resident_memory()),
          .device = on_gpu() ? device_bytes_ : static_cast<double>(peaks.total(MemoryPlace::device)),
          .on_host = static_cast<double>(peaks.total(MemoryPlace::host))};
}

double StepProfiler::start(int64_t completed) {
  if (traced_ && traced_->last <= completed) {
    log_info("train.trace_steps = {}: the run continues after step {}, so there is no trace", config_.train.trace_steps,
             completed);
    traced_.reset();
  }
  if (!on_gpu()) work_.runtime->stream.trace().keep_time(&clock_);
  begun_ = clock_.align();
  if (!on_gpu()) return begun_;
  device_bytes_ = device_bytes();
  return begun_ = set_device_time();
}

double StepProfiler::set_device_time() {
  reference_ = device::make_timed_event();
  device::record(reference_.get(), work_.runtime->stream.queue().stream);
  wait_for(reference_.get());
  return reference_at_ = StepClock::host_now();
}

void StepProfiler::begin_launch(int64_t step) {
  if (!measures(step)) return;
  if (traces(step) && !tracing_) begin_trace();
  if (!on_gpu()) return;
  if (!tracing_) clock_.align();
  device_bytes_ = device_bytes();
  work_.runtime->stream.trace().keep_time(&clock_);
  clock_.begin_step();
}

void StepProfiler::end_launch(int64_t step) {
  if (!on_gpu()) return;
  ends_.push_back(device::make_timed_event());
  device::record(ends_.back().get(), work_.runtime->stream.queue().stream);
  if (!measures(step)) return;
  clock_.end_step(step);
  work_.runtime->stream.trace().keep_time(nullptr);
}

// Starts the ranks' clocks after a barrier, so that they agree.
void StepProfiler::begin_trace() {
  Stream& s = work_.runtime->stream;
  s.synchronize();
  work_.runtime->mesh.channel(Channel::world).barrier(s);
  const double aligned = clock_.align();
  if (!on_gpu()) at(between_, Account::elsewhere) += aligned - begun_;
  clock_.keep_spans(tracing_ = true);
}

Measured StepProfiler::report(int64_t step, const StepScalars& scalars) {
  Measured measured{.time = {}, .memory = fullest(scalars.ranks.stats)};
  const Accounts between = std::exchange(between_, {});
  if (on_gpu()) {
    const device::OwnedEvent before = std::exchange(reference_, std::move(ends_.front()));
    ends_.pop_front();
    wait_for(reference_.get());
    reference_at_ += device::seconds_between(before.get(), reference_.get());
    measured.ended = reference_at_;
  } else {
    measured.ended = clock_.end_step(step);
  }
  begun_ = measured.ended;
  if (!measures(step)) return measured;
  const Accounts mine = clock_.take();
  std::vector<Accounts> ranks;
  if (on_gpu()) {
    ranks = of_all_ranks(session_, mine);
  } else {
    for (const HostStats& rank : scalars.ranks.stats) ranks.push_back(rank.so_far);
    ranks = accounts_of_ranks(ranks, static_cast<size_t>(session_.rank()), mine);
  }
  measured.time = {.breakdown = mean(ranks), .slowest = slowest(ranks)};
  measured.time->breakdown += between;
  sum_ += measured.time->breakdown;
  measured_++;
  return measured;
}

double StepProfiler::between(Account account, const std::function<void()>& work) {
  work();
  if (!ends_.empty()) return begun_;  // the GPU was in a step meanwhile, whose time counts
  const double end = on_gpu() ? set_device_time() : clock_.begin_step();
  at(between_, account) += end - begun_;
  return begun_ = end;
}

Accounts StepProfiler::finish() {
  if (tracing_) write_trace();
  const Accounts after = on_gpu() ? Accounts{} : between_;
  sum_ += after;
  if (measured_ > 0)
    log_info("where the time went{}, {:.4g} s{}: {}", on_gpu() ? fmt::format(" in {} measured steps", measured_) : "",
             total(sum_), session_.size() > 1 ? fmt::format(", mean of {} ranks", session_.size()) : "",
             shares_in_words(sum_));
  return after;
}

double StepProfiler::write_trace() {
  const std::vector<Span> mine = clock_.take_spans();
  clock_.keep_spans(tracing_ = false);
  const std::string path = config_.run.output + "/trace-" + config_.train.trace_steps + ".json";
  std::optional<TraceFile> file;
  std::string trouble;  // must not end the run
  const auto on_rank_0 = [&](const auto& work) {
    if (session_.rank() != 0 || !trouble.empty()) return;
    try {
      work();
    } catch (const Error& e) {
      trouble = e.what();
      file.reset();
    }
  };
  on_rank_0([&] { file.emplace(path); });
  // Gather rank by rank, so that rank 0 holds the spans of one other rank at a time.
  for (int rank = 0; rank < session_.size(); rank++) {
    const std::string text =
        session_.all_gather_text(rank == session_.rank() ? text_of(mine) : "")[static_cast<size_t>(rank)];
    on_rank_0([&] { file->add({work_.plan.mesh.describe(rank), spans_of(text)}); });
  }
  on_rank_0([&] {
    for (const TraceProcess& stage : repeated(predicted_, mine)) file->add(stage);
    file->publish();
  });
  if (!trouble.empty())
    log_warning("no trace of steps {}: {}", config_.train.trace_steps, trouble);
  else
    log_info("trace of steps {}: {}{}; open it with ui.perfetto.dev", config_.train.trace_steps, path,
             !predicted_.empty() ? ", with the plan's prediction"
                                 : ", without a prediction: hardware.profile is empty (`megalith measure` writes a "
                                   "profile of this machine)");
  return begun_ = on_gpu() ? set_device_time() : clock_.begin_step();
}

}  // namespace megalith
