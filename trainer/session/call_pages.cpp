#include "trainer/session/call_pages.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "trainer/session/machine.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

// Of /proc/PID/stat: the state's letter and when the process started; an empty state where there is no such process.
struct ProcessStat {
  char state = 0;
  uint64_t start = 0;
};
ProcessStat stat_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const size_t close = text.rfind(')');  // the name before it may hold anything
  if (close == std::string::npos) return {};
  std::istringstream rest(text.substr(close + 1));
  ProcessStat stat;
  rest >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; field++) rest >> skipped;
  rest >> stat.start;
  return stat;
}

uint64_t own_pid_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

// Of a process of this machine.
RankState state_of(const CallPage& page) {
  switch (page.ending) {
    case CallPage::Ending::in_order: return RankState::left;
    case CallPage::Ending::gave_up: return RankState::gave_up;
    default: break;
  }
  if (page.pid_namespace != own_pid_namespace()) return RankState::running;  // its number means nothing here
  const ProcessStat stat = stat_of(page.pid);
  if (stat.state == 0 || stat.state == 'Z' || stat.state == 'X' || stat.start != page.process_start)
    return RankState::dead;
  return stat.state == 'T' || stat.state == 't' ? RankState::stopped : RankState::running;
}

// Null where it is not whole: it is being written, or of another program.
std::unique_ptr<CallPage> read_copy(const std::string& path) try {
  const std::string bytes = read_file(path);
  if (bytes.size() != sizeof(CallPage)) return nullptr;
  auto page = std::make_unique<CallPage>();
  std::memcpy(static_cast<void*>(page.get()), bytes.data(), sizeof(CallPage));
  return page->magic == CallPage::magic_number ? std::move(page) : nullptr;
} catch (const Error&) {
  return nullptr;
}

KnownRank known_from(const CallPage& copy) {
  KnownRank known = read_page(copy);
  known.state = static_cast<RankState>(copy.seen_state);
  return known;
}

std::string copy_path(const std::string& folder, int rank) { return fmt::format("{}/rank-{}", folder, rank); }

}  // namespace

int64_t steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string CallPages::shared_path(uint64_t job, const std::string& name) {
  std::error_code absent;
  const std::string folder =
      fs::is_directory("/dev/shm", absent) && ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path();
  return fmt::format("{}/megalith-{:016x}.{}", folder, job, name);
}

void CallPages::remove_shared(uint64_t job) {
  const fs::path prefix = shared_path(job, "");
  std::vector<std::string> found;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(prefix.parent_path(), absent))
    if (entry.path().filename().string().starts_with(prefix.filename().string())) found.push_back(entry.path());
  for (const std::string& path : found) discard(path);
}

CallPages::CallPages(uint64_t job, int rank, const std::vector<std::string>& machines)
    : job_(job), rank_(rank), size_(static_cast<int>(machines.size())) {
  const std::string& here = machines[static_cast<size_t>(rank)];
  for (int r = 0; r < size_; r++) (machines[static_cast<size_t>(r)] == here ? here_ : others_).push_back(r);
  try {
    shared_ = std::make_unique<SharedMemory>(page_path(rank), sizeof(CallPage));
    mine_ = static_cast<CallPage*>(shared_->data());
  } catch (const Error&) {
    own_ = std::make_unique<CallPage>();
    mine_ = own_.get();
  }
  CallPage& page = *mine_;
  page.job = job;
  page.rank = rank;
  page.size = size_;
  page.pid = ::getpid();
  page.process_start = stat_of(page.pid).start;
  page.pid_namespace = own_pid_namespace();
  std::strncpy(page.machine.data(), here.c_str(), page.machine.size() - 1);
  page.heartbeat = steady_now();
  page.now = 1;
  std::atomic_thread_fence(std::memory_order_release);
  page.magic = CallPage::magic_number;
}

void CallPages::open_others() {
  for (const int r : here_) {
    try {
      auto file = std::make_unique<MappedFile>(page_path(r));
      if (file->bytes().size() == sizeof(CallPage)) mapped_[r] = std::move(file);
    } catch (const Error&) {  // it has none, or none that is seen here
    }
  }
}

const CallPage* CallPages::page_of(int rank) const {
  if (rank == rank_) return mine_;
  const auto found = mapped_.find(rank);
  return found == mapped_.end() ? nullptr : reinterpret_cast<const CallPage*>(found->second->bytes().data());
}

std::unique_ptr<CallPage> CallPages::copy_of(int rank) const {
  const CallPage* page = page_of(rank);
  if (!page) return nullptr;
  auto copy = std::make_unique<CallPage>();
  std::memcpy(static_cast<void*>(copy.get()), static_cast<const void*>(page), sizeof(CallPage));
  copy->seen_state = static_cast<int32_t>(state_of(*page));
  copy->seen_at = steady_now();
  return copy;
}

std::vector<KnownRank> CallPages::look(const std::string& folder, fs::file_time_type since) const {
  std::vector<KnownRank> all;
  for (int r = 0; r < size_; r++) all.push_back({.rank = r, .size = size_});
  for (const int r : here_)
    if (const auto copy = copy_of(r)) all[static_cast<size_t>(r)] = known_from(*copy);
  for (const int r : others_) {
    std::error_code absent;
    if (folder.empty() || fs::last_write_time(copy_path(folder, r), absent) < since || absent) continue;
    if (const auto copy = read_copy(copy_path(folder, r)))
      if (copy->job == job_) all[static_cast<size_t>(r)] = known_from(*copy);
  }
  return all;
}

std::vector<KnownRank> CallPages::look_at_processes() const {
  std::vector<KnownRank> all;
  for (const auto& [r, file] : mapped_)
    if (r != rank_) all.push_back({.rank = r, .state = state_of(*page_of(r))});
  return all;
}

void CallPages::kill_stopped() const {
  for (const auto& [r, file] : mapped_)
    if (const CallPage& page = *page_of(r); r != rank_ && state_of(page) == RankState::stopped)
      ::kill(page.pid, SIGKILL);
}

void CallPages::publish(const std::string& folder, bool all) const {
  for (const int r : here_) {
    const auto copy = copy_of(r);
    if (!copy) continue;
    const bool able = static_cast<RankState>(copy->seen_state) == RankState::running;
    if (!all && r != rank_ && able) continue;
    write_file(copy_path(folder, r), {reinterpret_cast<const char*>(copy.get()), sizeof(CallPage)},
               {.replace = true, .durable = false, .aside = fmt::format(".by-{}", rank_)});
  }
}

std::vector<KnownRank> read_remains(const std::string& folder) {
  std::vector<KnownRank> all;
  const auto add = [&](const KnownRank& known) {
    for (int r = static_cast<int>(all.size()); r < known.size; r++) all.push_back({.rank = r, .size = known.size});
    if (static_cast<size_t>(known.rank) < all.size()) all[static_cast<size_t>(known.rank)] = known;
  };
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent))
    if (entry.path().filename().string().starts_with("rank-"))
      if (const auto copy = read_copy(entry.path().string())) add(known_from(*copy));
  std::ifstream job(folder + "/" + job_file);
  uint64_t number = 0;
  int size = 0;
  if (!(job >> std::hex >> number >> std::dec >> size)) return all;
  for (int r = 0; r < size; r++) {
    if (static_cast<size_t>(r) < all.size() && all[static_cast<size_t>(r)].state != RankState::unseen) continue;
    auto page = read_copy(CallPages::shared_path(number, std::to_string(r)));
    if (!page) continue;
    page->seen_state = static_cast<int32_t>(state_of(*page));
    add(known_from(*page));
  }
  return all;
}

}  // namespace megalith
