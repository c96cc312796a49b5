// Finds the flight recorders' pages (kernels/stream/flight_recorder.h) of a job's ranks, their dumps, and the states of
// their processes.
//
// Each rank's page is in shared memory of its node, so that the other ranks there can read it when it is stopped, and
// other processes after its death. For ranks of other nodes there are dumps, copies of pages in a folder that all nodes
// see: when asked, a rank writes its own, and those of ranks on its node that cannot.
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
  // `machines`: machine_id() of each rank. If memory cannot be shared, this rank is unseen by the others.
  RecorderPages(uint64_t job, int rank, const std::vector<std::string>& machines);

  // Call this once all ranks have created their pages.
  void open_others();

  RecorderPage& mine() { return *mine_; }
  bool on_one_node() const { return static_cast<int>(here_.size()) == size_; }

  // Returns every rank of the job: from its page; else from its dump in `folder` (if not empty), written at `since` or
  // later.
  std::vector<RankDump> look(const std::string& folder, std::filesystem::file_time_type since) const;
  // Returns the states of the others' processes on this node.
  std::set<RankState> states_of_others() const;
  // Writes the dumps of this rank, and of those on this node that are not running; with `all`, of all on this node.
  void write_dumps(const std::string& folder, bool all) const;

  // Sends SIGKILL to the stopped ranks of this node: the launcher would wake them to end them, and they would write
  // messages. Returns whether there were any.
  bool kill_stopped() const;

  // Returns the path of an object of a job in the shared memory of its node.
  static std::string shared_path(uint64_t job, const std::string& name);
  // Removes all of them on this node; processes that have them open keep them.
  static void remove_shared(uint64_t job);
  // Removes those of all jobs that began more than a day ago and have no process any more, since nothing else does.
  static void remove_forgotten();

 private:
  std::unique_ptr<RecorderPage> copy_of(int rank) const;  // null: it cannot be seen

  uint64_t job_;
  int rank_, size_;
  std::vector<int> here_;  // ranks of this node
  std::unique_ptr<SharedMemory> shared_;
  std::unique_ptr<RecorderPage> own_;  // if nothing can be shared
  RecorderPage* mine_;
  std::vector<std::unique_ptr<MappedFile>> mapped_;
  std::map<int, const RecorderPage*> pages_;  // visible ranks of this node
};

// Returns the ranks of a job that has ended: from the dumps in a folder and, for ranks without one, from the shared
// memory of this machine. Empty if neither exists.
std::vector<RankDump> read_dumps(const std::string& folder);

// Error if the folder holds a file that no job leaves there, since the next job removes the folder.
void check_dumps(const std::string& folder);

// The names of a job's files in shared memory begin with "megalith-JOB.". The folder's file `job` has that prefix while
// the job runs, and after it was killed.
constexpr const char* job_file = "job";
std::string job_name(uint64_t job);
uint64_t job_from(std::string_view name);      // 0: not the name of such a file
uint64_t read_job(const std::string& folder);  // 0: absent

constexpr const char* message_file = "message";  // in the folder: the message with which the job ended

}  // namespace megalith
