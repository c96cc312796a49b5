#include "trainer/checkpointing/shared_folder.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "checkpoints/checksum.h"
#include "kernels/system/files.h"
#include "trainer/job/agreement.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

constexpr const char* marker_prefix = ".seen-by-all-";
constexpr int tries = 50;  // every tenth of a second: a network file system may show a new name late

std::string location_of(const std::string& folder) {
  std::error_code error;
  const fs::path whole = fs::absolute(folder, error);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{} on {}", error ? folder : whole.string(), host);
}

bool holds(const std::string& path, const std::string& text) {
  for (int t = 0; t < tries; t++) try {
      if (t > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (read_file(path) == text) return true;
    } catch (const Error&) {
    }
  return false;
}

// Removes the files of jobs that crashed here; the lock on the folder keeps other jobs out.
void remove_leftovers(const std::string& folder, const std::string& job) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error))
    if (const std::string name = entry->path().filename().string();
        name.starts_with(marker_prefix) && !name.starts_with(marker_prefix + job))
      discard(entry->path().string());
}

}  // namespace

void check_all_see(const std::string& folder, const Session& session) {
  if (session.size() == 1) return;
  const std::string job = session.broadcast_text(hex(std::random_device()()) + hex(std::random_device()()));
  const std::string location_of_rank_0 = session.broadcast_text(location_of(folder));
  const auto file_of = [&](int rank) { return fmt::format("{}/{}{}.rank-{:05}", folder, marker_prefix, job, rank); };
  constexpr const char* remedy =
      "start all ranks in one working directory, or set checkpoint.directory to a folder of a file system that all "
      "ranks see";
  struct Marker {
    std::string path;
    ~Marker() { discard(path); }
  } const mine{file_of(session.rank())};
  together(session, [&] {
    if (session.rank() == 0) remove_leftovers(folder, job);
    try {
      File(mine.path, File::Use::create).append(job);
    } catch (const Error& e) {
      FAIL("{}, where every rank saves its part of a checkpoint. On rank 0 the folder is {}, here {}; {}", e.what(),
           location_of_rank_0, location_of(folder), remedy);
    }
  });
  together(session, [&] {
    CHECK(holds(file_of(0), job),
          "the checkpoint folder {} is not that of rank 0, which is {}: no checkpoint would be complete; {}",
          location_of(folder), location_of_rank_0, remedy);
  });
  // If each rank sees rank 0's file and rank 0 sees each rank's, they share the folder.
  together(session, [&] {
    for (int rank = 1; session.rank() == 0 && rank < session.size(); rank++)
      CHECK(holds(file_of(rank), job),
            "a file that rank {} writes into the checkpoint folder {} is not visible to rank 0; {}", rank,
            location_of_rank_0, remedy);
  });
}

}  // namespace megalith
