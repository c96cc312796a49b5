#include "trainer/session/call_pages.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "trainer/machine/machine.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

constexpr int largest_job = 1'000'000;  // a job that has more is none

// Of /proc/PID/stat: the state's letter and when the process started; zeros where it cannot be read.
struct ProcessStat {
  char state = 0;
  uint64_t start = 0;
};
ProcessStat stat_of(int pid) try {
  std::string text(4096, '\0');
  File file(fmt::format("/proc/{}/stat", pid), File::Use::stream);
  text.resize(static_cast<size_t>(file.read_next(text.data(), static_cast<int64_t>(text.size()))));
  const size_t close = text.rfind(')');  // the name before it may hold anything
  if (close == std::string::npos) return {};
  std::istringstream rest(text.substr(close + 1));
  ProcessStat stat;
  rest >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; field++) rest >> skipped;
  rest >> stat.start;
  return stat;
} catch (const Error&) {
  return {};
}

uint64_t own_pid_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

// Of a process of this machine.
RankState state_of(const RecorderPage& page) {
  if (page.ending != RankState::unseen) return page.ending;
  if (page.pid_namespace != own_pid_namespace()) return RankState::running;  // its number means nothing here
  const ProcessStat stat = stat_of(page.pid);
  if (stat.state == 0)  // for want of open files, say
    return ::kill(page.pid, 0) != 0 && errno == ESRCH ? RankState::dead : RankState::running;
  const bool another = page.process_start != 0 && stat.start != page.process_start;
  if (stat.state == 'Z' || stat.state == 'X' || another) return RankState::dead;
  return stat.state == 'T' || stat.state == 't' ? RankState::stopped : RankState::running;
}

// Whether a process runs this program and began then: no page is trusted with the number of one that is killed.
bool runs_this_program(int pid, uint64_t start) {
  struct stat mine {
  }, theirs{};
  return pid > 1 && start != 0 && stat_of(pid).start == start && ::stat("/proc/self/exe", &mine) == 0 &&
         ::stat(fmt::format("/proc/{}/exe", pid).c_str(), &theirs) == 0 && mine.st_dev == theirs.st_dev &&
         mine.st_ino == theirs.st_ino;
}

// Null where it is none: it is being written, or of another program.
std::unique_ptr<RecorderPage> read_copy(const std::string& path, File::Use use = File::Use::read) try {
  const std::string bytes = read_file(path, use);
  if (bytes.size() != sizeof(RecorderPage)) return nullptr;
  auto page = std::make_unique<RecorderPage>();
  std::memcpy(static_cast<void*>(page.get()), bytes.data(), sizeof(RecorderPage));
  const bool makes_sense = 0 <= page->rank && page->rank < page->size && page->size <= largest_job;
  return page->magic == RecorderPage::magic_number && makes_sense ? std::move(page) : nullptr;
} catch (const Error&) {
  return nullptr;
}

KnownRank known_from(const RecorderPage& copy) {
  KnownRank known = read_page(copy);
  known.state = copy.seen_state;
  return known;
}

std::string copy_path(const std::string& folder, int rank) { return fmt::format("{}/rank-{}", folder, rank); }

}  // namespace

std::string to_text(const KnownJob& job) { return fmt::format("{:016x} {}\n", job.number, job.size); }

KnownJob job_from(const std::string& text) {
  KnownJob job;
  std::istringstream in(text);
  if (!(in >> std::hex >> job.number >> std::dec >> job.size) || job.size < 1 || job.size > largest_job) return {};
  return job;
}

namespace {

// Of files in shared memory: "megalith-JOB.NAME".
constexpr std::string_view file_prefix = "megalith-";
constexpr size_t job_digits = 16;

std::string shared_folder() {
  std::error_code absent;
  const bool there = fs::is_directory("/dev/shm", absent) && ::access("/dev/shm", W_OK) == 0;
  return there ? "/dev/shm" : fs::temp_directory_path().string();
}

// The job that a file of this name belongs to; 0: none.
uint64_t job_of_file(std::string_view name) {
  uint64_t job = 0;
  if (!name.starts_with(file_prefix) || name.size() <= file_prefix.size() + job_digits) return 0;
  const char* const end = name.data() + file_prefix.size() + job_digits;
  const auto [last, error] = std::from_chars(name.data() + file_prefix.size(), end, job, 16);
  return error == std::errc{} && last == end && *end == '.' ? job : 0;
}

// Those of this user: another may write there as well, and his jobs are his.
std::vector<fs::path> files_of_jobs() {
  std::vector<fs::path> found;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(shared_folder(), absent))
    if (job_of_file(entry.path().filename().string()) != 0 && is_own(entry.path().string()))
      found.push_back(entry.path());
  return found;
}

}  // namespace

std::string CallPages::shared_path(uint64_t job, const std::string& name) {
  return fmt::format("{}/{}{:0{}x}.{}", shared_folder(), file_prefix, job, job_digits, name);
}

void CallPages::remove_shared(uint64_t job) {
  for (const fs::path& path : files_of_jobs())
    if (job_of_file(path.filename().string()) == job) discard(path);
}

void CallPages::remove_forgotten() {
  std::map<uint64_t, bool> over;  // of each job
  for (const fs::path& path : files_of_jobs()) {
    std::error_code gone;
    const auto written = fs::last_write_time(path, gone);  // when it was made: what is mapped is not counted
    const bool old = !gone && fs::file_time_type::clock::now() - written > std::chrono::hours(24);
    const auto page = old ? read_copy(path.string(), File::Use::read_own) : nullptr;
    const RankState state = page ? state_of(*page) : RankState::dead;
    const bool lives = state == RankState::running || state == RankState::stopped;
    over.try_emplace(job_of_file(path.filename().string()), true).first->second &= old && !lives;
  }
  for (const auto& [job, is_over] : over)
    if (is_over) remove_shared(job);
}

CallPages::CallPages(uint64_t job, int rank, const std::vector<std::string>& machines)
    : job_(job), rank_(rank), size_(static_cast<int>(machines.size())) {
  const std::string& here = machines[static_cast<size_t>(rank)];
  for (int r = 0; r < size_; r++)
    if (machines[static_cast<size_t>(r)] == here) here_.push_back(r);
  try {
    shared_ = std::make_unique<SharedMemory>(page_path(rank), sizeof(RecorderPage));
    mine_ = static_cast<RecorderPage*>(shared_->data());
  } catch (const Error&) {
    own_ = std::make_unique<RecorderPage>();
    mine_ = own_.get();
  }
  RecorderPage& page = *mine_;
  page.job = job;
  page.rank = rank;
  page.size = size_;
  page.pid = ::getpid();
  page.process_start = stat_of(page.pid).start;
  page.pid_namespace = own_pid_namespace();
  std::strncpy(page.machine.data(), here.c_str(), page.machine.size() - 1);
  page.now = 1;
  std::atomic_thread_fence(std::memory_order_release);
  page.magic = RecorderPage::magic_number;
}

void CallPages::open_others() {
  for (const int r : here_) {
    try {
      auto file = std::make_unique<MappedFile>(page_path(r), File::Use::read_own);
      if (file->bytes().size() == sizeof(RecorderPage)) mapped_[r] = std::move(file);
    } catch (const Error&) {  // it has none, or none that is seen here
    }
  }
}

const RecorderPage* CallPages::page_of(int rank) const {
  if (rank == rank_) return mine_;
  const auto found = mapped_.find(rank);
  return found == mapped_.end() ? nullptr : reinterpret_cast<const RecorderPage*>(found->second->bytes().data());
}

std::unique_ptr<RecorderPage> CallPages::copy_of(int rank) const {
  const RecorderPage* page = page_of(rank);
  if (!page) return nullptr;
  auto copy = std::make_unique<RecorderPage>();
  const int64_t last = page->begun.load(std::memory_order_acquire);
  std::memcpy(static_cast<void*>(copy.get()), static_cast<const void*>(page), sizeof(RecorderPage));
  std::atomic_thread_fence(std::memory_order_acquire);
  // The rank goes on meanwhile: a call whose place it may have given to another is none.
  const int64_t under_way = page->begun.load(std::memory_order_relaxed) + 1;
  const auto slots = static_cast<int64_t>(RecorderPage::num_slots);
  for (int64_t t = std::max<int64_t>(1, last - slots + 1); t <= std::min(last, under_way - slots); t++)
    copy->slots[static_cast<size_t>(t) % RecorderPage::num_slots].ticket = 0;
  copy->begun = last;
  copy->seen_state = state_of(*page);
  return copy;
}

std::vector<KnownRank> CallPages::look(const std::string& folder, fs::file_time_type since) const {
  std::vector<KnownRank> all;
  for (int r = 0; r < size_; r++) {
    all.push_back({.rank = r, .size = size_});
    if (const auto copy = copy_of(r)) {
      all.back() = known_from(*copy);
      continue;
    }
    std::error_code absent;
    if (folder.empty() || fs::last_write_time(copy_path(folder, r), absent) < since || absent) continue;
    if (const auto copy = read_copy(copy_path(folder, r)))
      if (copy->job == job_ && copy->rank == r) all.back() = known_from(*copy);
  }
  return all;
}

std::vector<KnownRank> CallPages::look_at_processes() const {
  std::vector<KnownRank> all;
  for (const auto& [r, file] : mapped_)
    if (r != rank_) all.push_back({.rank = r, .state = state_of(*page_of(r))});
  return all;
}

bool CallPages::kill_stopped() const {
  bool any = false;
  for (const auto& [r, file] : mapped_) {
    const RecorderPage& page = *page_of(r);
    const int pid = page.pid;
    if (r != rank_ && state_of(page) == RankState::stopped && runs_this_program(pid, page.process_start))
      any = ::kill(pid, SIGKILL) == 0 || any;
  }
  return any;
}

void CallPages::publish(const std::string& folder, bool all) const {
  for (const int r : here_) {
    const auto copy = copy_of(r);
    if (!copy) continue;
    const bool able = copy->seen_state == RankState::running;
    if (!all && r != rank_ && able) continue;
    write_file(copy_path(folder, r), {reinterpret_cast<const char*>(copy.get()), sizeof(RecorderPage)},
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
  std::string text;
  std::getline(std::ifstream(folder + "/" + job_file), text);
  const KnownJob job = job_from(text);
  for (int r = 0; r < job.size; r++) {
    if (static_cast<size_t>(r) < all.size() && all[static_cast<size_t>(r)].state != RankState::unseen) continue;
    auto page = read_copy(CallPages::shared_path(job.number, std::to_string(r)), File::Use::read_own);
    if (!page) continue;
    page->seen_state = state_of(*page);
    add(known_from(*page));
  }
  return all;
}

void check_remains(const std::string& folder) {
  constexpr const char* ours[] = {job_file, message_file, "rank-", "asked", "end", "warning."};
  std::error_code absent;
  for (fs::directory_iterator at(folder, absent), end; !absent && at != end; at.increment(absent)) {
    const std::string name = at->path().filename().string();
    CHECK(std::ranges::any_of(ours, [&](const char* begin) { return name.starts_with(begin); }),
          "{} is where a job keeps its ranks' calls, and {} in it is of no job; move it away, or choose another "
          "run.output",
          folder, name);
  }
}

}  // namespace megalith
