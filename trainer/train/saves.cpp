#include "trainer/train/saves.h"

#include <thread>

#include "checkpoints/reader.h"
#include "checkpoints/store.h"
#include "kernels/system/process_limits.h"
#include "trainer/job/agreement.h"
#include "trainer/log/log.h"
#include "trainer/train/skipped_step.h"

namespace megalith {

int64_t newest_checkpoint(const CheckpointConfig& config, const Session& session) {
  int64_t step = 0;
  together(session, [&] {
    if (session.rank() != 0) return;
    const std::vector<std::string> all = CheckpointStore(config).usable();
    if (!all.empty()) step = CheckpointReader(all.front()).manifest().step;
  });
  return of_all_ranks(session, step).front();
}

Saves::Saves(const Config& config, const Session& session, Checkpointer& checkpointer, Preemption& preemption)
    : config_(config), session_(session), checkpointer_(checkpointer), preemption_(preemption) {}

policy::Event Saves::save(const Progress& progress, bool prune) {
  tried_ = std::chrono::steady_clock::now();
  SavedCheckpoint saved;
  try {
    preemption_.save([&] { saved = checkpointer_.save(progress, !prune); });
  } catch (const JobError& e) {
    return failed(e.what());
  }
  return ended(saved);
}

policy::Event Saves::begin_save(const Progress& progress, bool prune) {
  tried_ = std::chrono::steady_clock::now();
  preemption_.begin_asynchronous_save();
  checkpointer_.begin_save(progress, !prune);
  return policy::SaveBegun{};
}

std::optional<policy::Event> Saves::asynchronously(std::optional<SavedCheckpoint> (Checkpointer::*part)()) {
  std::optional<SavedCheckpoint> saved;
  try {
    saved = (checkpointer_.*part)();
  } catch (const JobError& e) {
    preemption_.end_asynchronous_save(0);
    return failed(e.what());
  }
  if (!saved) return {};
  preemption_.end_asynchronous_save(saved->seconds);
  return ended(*saved);
}

policy::Event Saves::ended(const SavedCheckpoint& saved) {
  succeeded_ = std::chrono::steady_clock::now();
  last_ = saved;
  log_info("step {}  checkpoint {}", saved.step, saved.path);
  for (const std::string& why : saved.left) log_warning("{}; the next save tries again", why);
  return policy::SaveEnded{.step = saved.step, .finite = saved.not_finite.empty()};
}

policy::Event Saves::failed(const std::string& why) {
  failure_ = {why, of_all_ranks(session_, minutes_since(succeeded_)).front()};
  return policy::SaveFailed{.minutes = failure_.minutes, .hopeless = names_process_limit(why)};
}

std::string Saves::since_success() const {
  return fmt::format("{:.1f} minutes have passed without one, and checkpoint.patience = {:g}", failure_.minutes,
                     config_.checkpoint.patience);
}

void Saves::warn_failed() const {
  log_warning("no checkpoint could be written; the run continues and tries again: {}; {}", failure_.why,
              since_success());
}

void Saves::warn_last_update_unsaved() const { log_warning("the last weights are not saved: {}", failure_.why); }

void Saves::wait_to_retry(double seconds) const { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void Saves::fail_patience() const {
  throw JobError(__FILE__, __LINE__, fmt::format("{}; {}", failure_.why, since_success()));
}

void Saves::fail_not_finite(const Stability& stability) {
  const RestartPoint back =
      choose_restart(config_.checkpoint, session_, stability, {.since = last_.step, .stable = false});
  throw JobError(
      __FILE__, __LINE__,
      fmt::format("the state after step {} is not finite, and no update can repair it: {} holds {} and is resumed "
                  "only by name; {}. {}",
                  last_.step, last_.path, last_.not_finite, restart_in_words(config_, back),
                  remedy_of(config_, Decision::not_finite, last_.step)));
}

}  // namespace megalith
