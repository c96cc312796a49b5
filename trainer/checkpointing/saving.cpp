#include "trainer/checkpointing/saving.h"

#include <chrono>
#include <utility>

#include "kernels/system/process_limits.h"
#include "trainer/job/agreement.h"

namespace megalith {

Saving::Saving(const Session& session, RankFileWriter& writer, Task task)
    : session_(session), writer_(writer), task_(std::move(task)) {
  saved_.step = task_.step;
}

void Saving::work() noexcept {
  const auto begin = std::chrono::steady_clock::now();
  const bool first = session_.rank() == 0;
  try {
    if (phase_ == Phase::prepare && first) {
      prune();
      result_ = task_.store.begin(task_.step);
    }
    if (phase_ == Phase::write) result_ = to_text(writer_.write(folder_, session_.rank(), task_.shards));
    if (phase_ == Phase::publish && first) publish();
  } catch (const std::exception& e) {
    error_ = message_in_words(e);
    if (error_.empty()) error_ = "an error without a message";
  }
  saved_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Saving::publish() {
  Manifest manifest{.step = task_.step, .state = task_.state, .files = {}};
  for (const std::string& text : records_) manifest.files.push_back(file_record_from_text(text));
  saved_.not_finite = what_is_not_finite(manifest);
  saved_.path = task_.store.publish(folder_, std::move(manifest));
  prune();
}

// Runs before the save and again after it, which retries failed deletions; the last result counts.
void Saving::prune() {
  if (task_.prune) saved_.left = task_.prune();
}

bool Saving::agree() {
  if (const std::string error = merge_messages(session_, error_); !error.empty()) {
    if (phase_ == Phase::write && session_.rank() == 0) try {
        task_.store.remove(folder_);
      } catch (const Error&) {
      }  // the next save removes it
    throw JobError(__FILE__, __LINE__, error);
  }
  if (phase_ == Phase::prepare) folder_ = session_.broadcast_text(result_);
  if (phase_ == Phase::write) records_ = session_.all_gather_text(result_);
  if (phase_ != Phase::publish) {
    phase_ = phase_ == Phase::prepare ? Phase::write : Phase::publish;
    return true;
  }
  saved_.not_finite = session_.broadcast_text(saved_.not_finite);
  saved_.path = session_.broadcast_text(saved_.path);
  return false;
}

}  // namespace megalith
