// One save, as the ranks make it together. In each phase every rank does its part of the work, which waits for nobody;
// then all agree that it is done:
//
//   prepare   rank 0 deletes what has become needless, and makes the folder
//   write     every rank writes its file
//   publish   rank 0 writes the manifest and gives the folder its name; then it deletes again
//
// The work may be done by any thread, so that steps go on beside it. checkpoints/writer.h says what a death leaves.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoints/writer.h"
#include "trainer/session/session.h"

namespace megalith {

// A checkpoint that was written.
struct Saved {
  int64_t step = 0;
  std::string path{};
  std::string not_finite{};         // what it holds of such values, in words (what_is_not_finite); empty: nothing
  double seconds = 0;               // that this rank worked for it
  std::vector<std::string> left{};  // on rank 0: why needless folders could not be deleted, a sentence each
};

class Saving {
 public:
  struct Task {
    std::string directory;
    int64_t step = 0;
    std::vector<ShardToWrite> shards;  // of this rank; their memory outlives the save
    // Of rank 0.
    nlohmann::json state;  // for the manifest
    // Deletes what is needless, and says what it could not delete; none: nothing is deleted.
    std::function<std::vector<std::string>()> prune{};
  };

  // Session and writer, which is used by nobody else meanwhile, outlive it.
  Saving(const Session& session, RankFileWriter& writer, Task task);

  // This rank's part of the phase. An error is kept for agree().
  void work() noexcept;
  // Collective, after work(): whether there is another phase. JobError: a rank could not do its part; all are told, no
  // unfinished folder is left, if it can be removed, and earlier checkpoints are untouched but for those that were
  // needless.
  bool agree();
  // After the last phase.
  const Saved& saved() const { return saved_; }

 private:
  enum class Phase { prepare, write, publish };
  void publish();
  void prune();

  const Session& session_;
  RankFileWriter& writer_;
  const Task task_;
  Phase phase_ = Phase::prepare;
  std::string folder_;
  std::vector<std::string> records_;  // of all ranks' files
  std::string result_, error_;        // of this rank's part
  Saved saved_;
};

}  // namespace megalith
