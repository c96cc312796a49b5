#include "trainer/train/preemption.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>
#include <vector>

#include "checkpoints/manifest.h"
#include "checkpoints/store.h"
#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "trainer/job/agreement.h"
#include "trainer/log/log.h"
#include "trainer/machine/terminal.h"
#include "trainer/session/launch.h"
#include "trainer/step/step_clock.h"

namespace megalith {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

// Returns "SIGTERM on rank 0, 1; SIGUSR1 on rank 2", with at most eight ranks a signal.
std::string who_got(const std::vector<int>& signals) {
  std::map<int, std::vector<size_t>> ranks;
  for (size_t r = 0; r < signals.size(); r++)
    if (signals[r] != 0) ranks[signals[r]].push_back(r);
  std::string text;
  for (const auto& [signal, all] : ranks) {
    text += fmt::format("{}{} on rank ", text.empty() ? "" : "; ", signal_name(signal));
    for (size_t i = 0; i < std::min<size_t>(all.size(), 8); i++)
      text += fmt::format("{}{}", i == 0 ? "" : ", ", all[i]);
    if (all.size() > 8) text += fmt::format(" and {} more", all.size() - 8);
  }
  return text;
}

// Estimates the seconds to write `bytes` to the folder's disk by writing a part of them. Returns 0 if that fails, since
// a save first deletes files and may succeed.
double seconds_to_write(int64_t bytes, const std::string& folder, int rank) try {
  const std::vector<char> part(static_cast<size_t>(std::clamp<int64_t>(bytes, 1, 16 << 20)), 'x');
  const double begin = StepClock::host_now();
  NewFile file(fmt::format("{}/.rate.rank-{}", folder, rank));
  file.write(0, part.data(), static_cast<int64_t>(part.size()));
  file.sync();
  const double seconds = StepClock::host_now() - begin;
  return seconds * std::max(1.0, static_cast<double>(bytes) / static_cast<double>(part.size()));
} catch (const Error&) {
  return 0;
}

}  // namespace

Preemption::Preemption(const CheckpointConfig& config, const Session& session) : config_(config), session_(session) {
  left_by_mpirun_ = seconds_left_by_mpirun([](const char* name) -> const char* { return std::getenv(name); });
  watch_.emplace(
      SignalWatch::Limits{.seconds = config_.on_signal_seconds,
                          .bound = fmt::format("checkpoint.on_signal_seconds = {:g}", config_.on_signal_seconds),
                          .needed = [this] { return seconds_needed(); },
                          .end = [this](int status, const std::string& why) { end_now(status, why); }});
}

void Preemption::begin(int64_t completed) {
  trained_ = completed_ = completed;
  trained_at_ = began_ = StepClock::host_now();
  watch_->hold();
}

void Preemption::trained(int64_t step) {
  const double now = StepClock::host_now(), took = now - trained_at_.exchange(now);
  if (shortest_step_ == 0 || took < shortest_step_) shortest_step_ = took;
  trained_ = step;
  if (left_by_mpirun_ <= 0 || took <= left_by_mpirun_) return;
  log_warning(
      "a step takes {:.2g} s, but mpirun kills its ranks {:g} s after a Ctrl-C, so that steps since the last "
      "checkpoint are lost. To save them, use `megalith run -n {} train ...` instead of mpirun, or send mpirun SIGUSR1",
      took, left_by_mpirun_, session_.size());
  left_by_mpirun_ = never;  // warn once
}

void Preemption::evaluate(const std::function<void()>& work) {
  evaluation_began_ = StepClock::host_now();
  work();
  longest_evaluation_ = std::max(longest_evaluation_, StepClock::host_now() - evaluation_began_);
}

void Preemption::save(const std::function<void()>& work) {
  const double begin = StepClock::host_now();
  work();
  longest_save_ = std::max(longest_save_.load(), StepClock::host_now() - begin);
}

void Preemption::begin_asynchronous_save() { asynchronous_since_ = StepClock::host_now(); }

void Preemption::end_asynchronous_save(double seconds) {
  asynchronous_since_ = 0;
  longest_asynchronous_ = std::max(longest_asynchronous_, seconds);
}

// Returns a lower bound: the rest of the shortest step, and the longest save so far.
double Preemption::seconds_needed() const {
  return std::max(0.0, shortest_step_ - (StepClock::host_now() - trained_at_)) + longest_save_;
}

double Preemption::seconds_a_step() const {
  return (StepClock::host_now() - began_) / static_cast<double>(std::max<int64_t>(1, trained_ - completed_));
}

bool Preemption::agree(int64_t bytes, int64_t batches) {
  return agree_with_time(
      bytes, longest_evaluation_ > 0 ? longest_evaluation_ : seconds_a_step() * static_cast<double>(batches));
}

bool Preemption::continues_evaluating(int64_t bytes, int64_t made, int64_t batches) {
  const double a_batch = (StepClock::host_now() - evaluation_began_) / static_cast<double>(made);
  if (agreed() || !agree_with_time(bytes, a_batch * static_cast<double>(batches - made)) || time_to_evaluate())
    return true;
  log_warning(
      "the evaluation stops after {} of {} without a result: {:.2g} s are left, and the rest takes about {:.2g} s",
      made, counted(batches, "batch", "batches"), agreed_->seconds_left, agreed_->evaluation);
  return false;
}

bool Preemption::agree_with_time(int64_t bytes, double evaluation) {
  const std::optional<SignalWatch::Asked> mine = watch_->asked();
  const std::vector<int> got = of_all_ranks(session_, mine ? mine->signal : 0);
  const auto first = std::find_if(got.begin(), got.end(), [](int signal) { return signal != 0; });
  if (first == got.end()) return false;
  // A save takes about twice as long as its bytes, since it also copies, checksums and renames.
  const double alone = longest_save_ > 0           ? longest_save_.load()
                       : longest_asynchronous_ > 0 ? longest_asynchronous_
                                                   : 2 * seconds_to_write(bytes, config_.directory, session_.rank());
  const double under_way =
      asynchronous_since_ > 0
          ? std::max(0.0, std::max(alone, longest_asynchronous_) - (StepClock::host_now() - asynchronous_since_))
          : 0;
  const double save = under_way + alone;

  Agreed agreed{.signal = *first, .who = who_got(got), .seconds_left = never, .bound = {}};
  const std::optional<SignalWatch::Asked> then = watch_->asked();  // with less time left
  using Expected = std::tuple<double, std::string, double, double>;
  for (const auto& [left, bound, evaluates, saves] :
       of_all_ranks(session_, Expected{then ? then->seconds_left : never, then ? then->bound : "", evaluation, save})) {
    if (left < agreed.seconds_left) std::tie(agreed.seconds_left, agreed.bound) = std::tie(left, bound);
    agreed.evaluation = std::max(agreed.evaluation, evaluates);
    agreed.save = std::max(agreed.save, saves);
  }
  watch_->agree(agreed.signal, agreed.seconds_left);
  log_info("{}: the run ends after step {}", agreed.who, trained_.load());
  agreed_ = std::move(agreed);
  return true;
}

bool Preemption::time_to_save() const { return agreed_->save < agreed_->seconds_left; }
bool Preemption::time_to_evaluate() const { return agreed_->evaluation + agreed_->save < agreed_->seconds_left; }

int Preemption::log_end(bool saved) const {
  if (session_.rank() == 0) {
    std::string why = agreed_->who;
    if (!saved)
      why += fmt::format("; a checkpoint takes about {:.2g} s, but only {:.2g} s are left by {}", agreed_->save,
                         std::max(0.0, agreed_->seconds_left), agreed_->bound);
    why += "; " + what_is_left().words;
    log_line("ended: " + why, LogTo::console);
    log_ended(why);
  }
  return saved ? ended_by_signal : status_of(agreed_->signal);
}

void Preemption::end_now(int status, const std::string& why) const {
  // A launcher signals all ranks at once. Wait by rank, so that one of them logs it.
  std::this_thread::sleep_for(std::chrono::milliseconds(20 * std::min(session_.rank(), 10)));
  const Left left = what_is_left();
  const std::string all = fmt::format("rank {}: {}; {}", session_.rank(), why, left.words);
  if (log_ended(all)) say_error(all);
  session_.abort(left.everything ? ended_by_signal : status);
}

Preemption::Left Preemption::what_is_left() const try {
  const std::vector<std::string> all = CheckpointStore(config_).usable();
  const int64_t newest = all.empty() ? 0 : read_manifest(all.front()).step, steps = trained_ - newest;
  const std::string lost = fmt::format("{} {} lost", counted(steps, "step"), steps == 1 ? "is" : "are");
  if (all.empty()) return {false, fmt::format("there is no checkpoint in {}, and {}", config_.directory, lost)};
  if (steps > 0)
    return {false, fmt::format("the newest checkpoint in {} is of step {}, and {}", config_.directory, newest, lost)};
  return {true,
          fmt::format("step {} is in a checkpoint in {}; run the same command to continue", newest, config_.directory)};
} catch (const std::exception& e) {
  return {false, fmt::format("cannot read the checkpoints in {}: {}", config_.directory, e.what())};
}

}  // namespace megalith
