// Where the pages of calls (kernels/base/flight_recorder.h) of a job's ranks lie, and what is known of their processes.
//
// Each rank's lies in shared memory of its node, so that the other ranks there can read it when it is stopped, and
// whoever comes later when it is dead. Ranks of other nodes are heard of by copies in a folder that all nodes see,
// which a rank makes when it is asked to, of itself and of those on its node that cannot.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/system/files.h"
#include "kernels/system/mapped_file.h"
#include "trainer/session/known_rank.h"

namespace megalith {

class CallPages {
 public:
  // `machines`: machine_id() of each rank. Where memory cannot be shared, this rank is unseen by the others.
  CallPages(uint64_t job, int rank, const std::vector<std::string>& machines);

  // Once all ranks have made theirs.
  void open_others();

  RecorderPage& mine() { return *mine_; }
  bool on_one_node() const { return static_cast<int>(here_.size()) == size_; }

  // Every rank of the job as far as it can be seen; those whose memory cannot be, by their copies in `folder`; empty:
  // these are unseen. `since`: copies from before that time of the file system are not looked at.
  std::vector<KnownRank> look(const std::string& folder, std::filesystem::file_time_type since) const;
  // The states of the others on this node, without their calls.
  std::vector<KnownRank> look_at_processes() const;
  // Copies for others: of this rank, and of those on this node that are not running; or of all on this node.
  void publish(const std::string& folder, bool all) const;

  // SIGKILL to those on this node that are stopped: the launcher would wake them to end them, and they would have a
  // word to say. Whether there were any.
  bool kill_stopped() const;

  // What belongs to a job in the shared memory of its node: what this makes has such a path.
  static std::string shared_path(uint64_t job, const std::string& name);
  // Removes all of them on this node; who has them open goes on with them.
  static void remove_shared(uint64_t job);
  // Those of all jobs that began more than a day ago and have no process any more: nobody was left to remove them.
  static void remove_forgotten();

 private:
  std::string page_path(int rank) const { return shared_path(job_, std::to_string(rank)); }
  const RecorderPage* page_of(int rank) const;  // null: it cannot be seen
  std::unique_ptr<RecorderPage> copy_of(int rank) const;

  uint64_t job_;
  int rank_, size_;
  std::vector<int> here_;  // ranks of this node
  std::unique_ptr<SharedMemory> shared_;
  std::unique_ptr<RecorderPage> own_;  // where nothing can be shared
  RecorderPage* mine_;
  std::map<int, std::unique_ptr<MappedFile>> mapped_;  // of ranks of this node
};

// Of a job that has gone: from the copies in a folder, and from the shared memory of this machine for those that made
// none. Empty where nothing is left.
std::vector<KnownRank> read_remains(const std::string& folder);

// Error where the folder holds something that no job leaves there: the next job, which removes it, may not.
void check_remains(const std::string& folder);

// The job that a folder is of, as long as it runs, and after it was killed.
struct KnownJob {
  uint64_t number = 0;  // 0: there is none
  int size = 0;         // ranks
};
std::string to_text(const KnownJob& job);
KnownJob job_from(const std::string& text);  // none where the text is of something else
constexpr const char* job_file = "job";      // in the folder

constexpr const char* message_file = "message";  // in the folder: what the job ended with

}  // namespace megalith
