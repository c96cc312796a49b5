#include "trainer/train/saves.h"

#include <algorithm>
#include <thread>

#include "checkpoints/directory.h"
#include "trainer/job/agreement.h"
#include "trainer/job/log.h"
#include "trainer/train/skipped_step.h"

namespace megalith {

namespace {

// A save that has failed is tried again after this share of checkpoint.patience.
constexpr double retry_share = 0.1;

using Clock = std::chrono::steady_clock;

double minutes_since(Clock::time_point time) { return std::chrono::duration<double>(Clock::now() - time).count() / 60; }

int64_t newest_in(const std::string& directory, const Session& session) {
  int64_t step = 0;
  together(session, [&] {
    if (session.rank() != 0) return;
    const std::vector<std::string> all = list_checkpoints(directory);
    if (!all.empty()) step = CheckpointReader(all.front()).manifest().step;
  });
  return of_all_ranks(session, step).front();
}

}  // namespace

Saves::Saves(const Config& config, const Session& session, Checkpointer& checkpointer, Ending& ending,
             const Progress& progress)
    : config_(config),
      session_(session),
      checkpointer_(checkpointer),
      ending_(ending),
      progress_(progress),
      newest_(newest_in(config.checkpoint.directory, session)) {}

void Saves::begin() { tried_ = succeeded_ = Clock::now(); }

bool Saves::is_due() const {
  const CheckpointConfig& c = config_.checkpoint;
  return (c.minutes > 0 && minutes_since(tried_) >= c.minutes) ||
         (failed_ && c.patience > 0 && minutes_since(tried_) >= retry_share * c.patience);
}

void Saves::save(bool keep_all, bool ends) {
  tried_ = Clock::now();
  if (saves_beside_steps(config_.checkpoint) && !ends) {
    ending_.saves_beside_steps();
    return checkpointer_.begin_save(progress_, keep_all);
  }
  // There are no steps to go on with while the last one is not saved. A signal's time is kept by its watch.
  while (!now(keep_all) && ends) {
    const double seconds = 60 * retry_share * config_.checkpoint.patience;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, 10.0)));
  }
}

bool Saves::now(bool keep_all) {
  Saved saved;
  try {
    ending_.save([&] { saved = checkpointer_.save(progress_, keep_all); });
  } catch (const JobError& e) {
    bear(e.what());
    return false;
  }
  note(saved);
  check_finite(saved);
  return true;
}

void Saves::beside_steps(Part part) {
  std::optional<Saved> saved;
  try {
    saved = (checkpointer_.*part)();
  } catch (const JobError& e) {
    ending_.saved_beside_steps(0);
    return bear(e.what());
  }
  if (!saved) return;
  ending_.saved_beside_steps(saved->seconds);
  note(*saved);
  check_finite(*saved);
}

void Saves::save_at_last(const Progress& progress) {
  try {
    note(checkpointer_.save(progress, true));
  } catch (const JobError& no_checkpoint) {  // what ends the run is said
    log_warning("the last weights are not saved: {}", no_checkpoint.what());
  }
}

void Saves::bear(const std::string& no_checkpoint) {
  failed_ = true;
  const double minutes = of_all_ranks(session_, minutes_since(succeeded_)).front();
  const double patience = config_.checkpoint.patience;
  const std::string since =
      fmt::format("{:.1f} minutes have passed without one, and checkpoint.patience = {:g}", minutes, patience);
  if (minutes >= patience) throw JobError(__FILE__, __LINE__, fmt::format("{}; {}", no_checkpoint, since));
  log_warning("no checkpoint could be written, and the run goes on and tries again: {}; {}", no_checkpoint, since);
}

void Saves::note(const Saved& saved) {
  succeeded_ = Clock::now();
  failed_ = false;
  if (saved.not_finite.empty()) newest_ = saved.step;
  log_info("step {}  checkpoint {}", saved.step, saved.path);
  for (const std::string& why : saved.left) log_warning("{}; the next save tries again", why);
}

void Saves::check_finite(const Saved& saved) const {
  if (saved.not_finite.empty()) return;
  const WayBack back = checkpointer_.go_back(progress_.sanity, {.since = saved.step, .sane = false});
  throw JobError(
      __FILE__, __LINE__,
      fmt::format("the state after step {} is not finite, and no update makes it so again: {} holds {}, and is "
                  "not resumed unless it is named; {}. {}",
                  saved.step, saved.path, saved.not_finite, way_back_in_words(config_, back),
                  remedy_of(config_, Decision::not_finite, saved.step)));
}

}  // namespace megalith
