// Finds the flight recorders' pages (kernels/stream/flight_recorder.h) of a job's ranks, their dumps, and the states of
// their processes.
//
// Each rank's page lies in shared memory of its node, so that the other ranks there can read it when it is stopped, and
// whoever comes later when it is dead. Of ranks of other nodes there are dumps, copies of pages in a folder that all
// nodes see: a rank that is asked writes its own, and those of ranks on its node that cannot.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/system/files.h"
#include "kernels/system/mapped_file.h"
#include "trainer/doctor/dump.h"

namespace megalith {

class RecorderPages {
 public:
  // `machines`: machine_id() of each rank. Where memory cannot be shared, this rank is unseen by the others.
  RecorderPages(uint64_t job, int rank, const std::vector<std::string>& machines);

  // Once all ranks have made theirs.
  void open_others();

  RecorderPage& mine() { return *mine_; }
  bool on_one_node() const { return static_cast<int>(here_.size()) == size_; }

  // Every rank of the job: from its page; else from its dump in `folder` (if not empty), written at `since` or later.
  std::vector<RankDump> look(const std::string& folder, std::filesystem::file_time_type since) const;
  // Returns the states of the others' processes on this node.
  std::set<RankState> states_of_others() const;
  // Writes the dumps of this rank, and of those on this node that are not running; or of all on this node.
  void write_dumps(const std::string& folder, bool all) const;

  // Sends SIGKILL to those on this node that are stopped: the launcher would wake them to end them, and they would have
  // a word to say. Returns whether there were any.
  bool kill_stopped() const;

  // Returns the path of something that belongs to a job in the shared memory of its node.
  static std::string shared_path(uint64_t job, const std::string& name);
  // Removes all of them on this node; who has them open goes on with them.
  static void remove_shared(uint64_t job);
  // Removes those of all jobs that began more than a day ago and have no process any more: nobody else is left to.
  static void remove_forgotten();

 private:
  std::unique_ptr<RecorderPage> copy_of(int rank) const;  // null: it cannot be seen

  uint64_t job_;
  int rank_, size_;
  std::vector<int> here_;  // ranks of this node
  std::unique_ptr<SharedMemory> shared_;
  std::unique_ptr<RecorderPage> own_;  // where nothing can be shared
  RecorderPage* mine_;
  std::vector<std::unique_ptr<MappedFile>> mapped_;
  std::map<int, const RecorderPage*> pages_;  // of ranks of this node that can be seen
};

// The ranks of a job that has gone: from the dumps in a folder, and from the shared memory of this machine for those
// that made none. Empty where nothing is left.
std::vector<RankDump> read_dumps(const std::string& folder);

// Error where the folder holds something that no job leaves there: the next job, which removes it, may not.
void check_dumps(const std::string& folder);

// The names of a job's files in shared memory begin with "megalith-JOB.". The folder's file `job` has that prefix as
// long as the job runs, and after it was killed.
constexpr const char* job_file = "job";
std::string job_name(uint64_t job);
uint64_t job_from(std::string_view name);      // 0: the name is no such file's
uint64_t read_job(const std::string& folder);  // 0: there is none

constexpr const char* message_file = "message";  // in the folder: what the job ended with

}  // namespace megalith
