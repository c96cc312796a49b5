#include "trainer/session/mpi_session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "trainer/machine/machine.h"
#include "trainer/machine/terminal.h"
#include "trainer/session/launch.h"
#include "trainer/session/launch_line.h"
#include "trainer/session/mpi_check.h"

namespace megalith {

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_CHECK(MPI_Get_library_version(text, &length));
  const std::string all(text);
  return all.substr(0, std::min(all.find(','), all.find('\n')));
}

namespace {

// Returns whether all ranks are on this host, according to mpirun, and can communicate through its shared memory.
bool share_memory() {
  const char *all = std::getenv("OMPI_COMM_WORLD_SIZE"), *here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!all || !here || std::string(all) != here) return false;
  return std::getenv("OMPI_MCA_btl_vader_backing_directory") ||
         free_shared_memory() >= std::atoi(all) * shared_memory_a_rank;
}

// Ends the process if this object lives longer than `seconds`.
class StartWatch {
 public:
  explicit StartWatch(double seconds) {
    if (!std::isfinite(seconds)) return;
    thread_ = std::thread([this, seconds] {
      std::unique_lock lock(mutex_);
      if (ended_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return is_over_; })) return;
      const Launch launch = launch_of_this_process();
      say_error(
          fmt::format("rank {} of {}: MPI has not started after communication.timeout = {:g} s: another rank has not "
                      "begun or cannot be reached; check that all nodes are up and reach one another",
                      launch.rank, launch.size, seconds));
      std::_Exit(1);
    });
  }
  ~StartWatch() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv, double timeout) {
  const StartWatch watch(timeout);
  // Ranks may outnumber cores: a rank that waits yields its core.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  // Open MPI's transport between hosts listens on all addresses of this one.
  if (share_memory()) setenv("OMPI_MCA_btl", "^tcp,ofi", 0);
  int provided = 0;
  MPI_CHECK(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
  MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  rank_ = mpi_rank(MPI_COMM_WORLD);
  size_ = mpi_size(MPI_COMM_WORLD);
  MPI_Comm node;
  MPI_CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  node_rank_ = mpi_rank(node);
  node_size_ = mpi_size(node);
  MPI_CHECK(MPI_Comm_free(&node));
}

MpiSession::~MpiSession() { MPI_Finalize(); }

std::vector<std::string> MpiSession::all_gather_text(const std::string& mine) const {
  const int length = mpi_count(static_cast<int64_t>(mine.size()));
  const auto ranks = static_cast<size_t>(size_);
  std::vector<int> lengths(ranks), offsets(ranks);
  MPI_CHECK(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD));
  int64_t total = 0;
  for (size_t r = 0; r < ranks; r++) {
    offsets[r] = mpi_count(total);
    total += lengths[r];
  }
  std::string all(static_cast<size_t>(total), '\0');
  MPI_CHECK(MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(), MPI_CHAR,
                           MPI_COMM_WORLD));
  std::vector<std::string> texts;
  for (size_t r = 0; r < ranks; r++)
    texts.push_back(all.substr(static_cast<size_t>(offsets[r]), static_cast<size_t>(lengths[r])));
  return texts;
}

std::string MpiSession::broadcast_text(const std::string& text) const {
  int length = mpi_count(static_cast<int64_t>(text.size()));
  MPI_CHECK(MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD));
  std::string copy = text;
  copy.resize(static_cast<size_t>(length));
  MPI_CHECK(MPI_Bcast(copy.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD));
  return copy;
}

void MpiSession::abort(int status) const {
  int main_thread = 0;
  MPI_Is_thread_main(&main_thread);
  if (main_thread) MPI_Abort(MPI_COMM_WORLD, status);
  // Other threads may not call MPI; mpirun ends the job if a rank ends like this.
  std::fflush(nullptr);
  std::_Exit(status);
}

}  // namespace megalith
