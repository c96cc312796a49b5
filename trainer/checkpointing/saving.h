// Makes a save together with the other ranks. In each phase every rank does its part of the work without waiting for
// others, on any thread; then all agree that it is done:
//
//   prepare   rank 0 deletes what is not needed, and makes the folder
//   write     every rank writes its file
//   publish   rank 0 writes the manifest and renames the folder; then it deletes again
//
// A crash leaves what checkpoints/writer.h describes.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoints/store.h"
#include "checkpoints/writer.h"
#include "trainer/session/session.h"

namespace megalith {

struct SavedCheckpoint {
  int64_t step = 0;
  std::string path{};
  std::string not_finite{};         // describes such values (what_is_not_finite); empty: all are finite
  double seconds = 0;               // this rank's work
  std::vector<std::string> left{};  // on rank 0: one sentence for each folder that could not be deleted
};

class Saving {
 public:
  struct Task {
    CheckpointStore store;
    int64_t step = 0;
    std::vector<ShardToWrite> shards;  // their memory outlives the save
    // Used on rank 0 only:
    nlohmann::json state;
    // Deletes unneeded checkpoints and returns a sentence for each failure; null: deletes nothing.
    std::function<std::vector<std::string>()> prune{};
  };

  // Session and writer must outlive this object, and must not be used otherwise meanwhile.
  Saving(const Session& session, RankFileWriter& writer, Task task);

  // Does this rank's part of the phase. Keeps an error for agree().
  void work() noexcept;
  // Collective, after work(). Returns whether there is another phase. JobError on all ranks if one failed. The
  // unfinished folder is then removed, if possible, and earlier checkpoints that are needed are untouched.
  bool agree();
  // Valid after the last phase.
  const SavedCheckpoint& saved() const { return saved_; }

 private:
  enum class Phase { prepare, write, publish };
  void publish();
  void prune();

  const Session& session_;
  RankFileWriter& writer_;
  const Task task_;
  Phase phase_ = Phase::prepare;
  std::string folder_;
  std::vector<std::string> records_;  // one for each rank
  std::string result_, error_;        // this rank's
  SavedCheckpoint saved_;
};

}  // namespace megalith
