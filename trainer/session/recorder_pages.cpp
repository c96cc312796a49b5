#include "trainer/session/recorder_pages.h"

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

namespace megalith {

namespace {

namespace fs = std::filesystem;

constexpr int largest_job = 1'000'000;  // a larger number is not a job's

// The state's letter and the start time of a process, from /proc/PID/stat; zeros if it cannot be read.
struct ProcessStat {
  char state = 0;
  uint64_t start = 0;
};
ProcessStat stat_of(int pid) {
  std::string text, skipped;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), text, '\0');
  const size_t close = text.rfind(')');  // the name before it may contain any character
  if (close == std::string::npos) return {};
  std::istringstream rest(text.substr(close + 1));
  ProcessStat stat;
  rest >> stat.state;
  for (int field = 4; field < 22; field++) rest >> skipped;
  rest >> stat.start;
  return stat;
}

uint64_t own_pid_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

// The process runs on this machine.
RankState state_of(const RecorderPage& page) {
  if (page.ending != RankState::unseen) return page.ending;
  if (page.pid_namespace != own_pid_namespace()) return RankState::running;  // its number has no meaning here
  const ProcessStat stat = stat_of(page.pid);
  if (stat.state == 0)  // e.g. for lack of open files
    return ::kill(page.pid, 0) != 0 && errno == ESRCH ? RankState::dead : RankState::running;
  const bool another = page.process_start != 0 && stat.start != page.process_start;
  if (stat.state == 'Z' || stat.state == 'X' || another) return RankState::dead;
  return stat.state == 'T' || stat.state == 't' ? RankState::stopped : RankState::running;
}

// Returns whether a process runs this program and began then: the number in a page alone is not enough to kill a
// process.
bool runs_this_program(int pid, uint64_t start) {
  struct stat mine {
  }, theirs{};
  return pid > 1 && start != 0 && stat_of(pid).start == start && ::stat("/proc/self/exe", &mine) == 0 &&
         ::stat(fmt::format("/proc/{}/exe", pid).c_str(), &theirs) == 0 && mine.st_dev == theirs.st_dev &&
         mine.st_ino == theirs.st_ino;
}

// Returns null if it is not a page: it is being written, or belongs to another program.
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

std::string dump_path(const std::string& folder, int rank) { return fmt::format("{}/rank-{}", folder, rank); }

constexpr std::string_view file_prefix = "megalith-";
constexpr size_t job_digits = 16;

std::string shared_folder() {
  std::error_code absent;
  const bool there = fs::is_directory("/dev/shm", absent) && ::access("/dev/shm", W_OK) == 0;
  return there ? "/dev/shm" : fs::temp_directory_path().string();
}

// They must be this user's: other users may write there too, for their own jobs.
std::vector<fs::path> files_of_jobs() {
  std::vector<fs::path> found;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(shared_folder(), absent))
    if (job_from(entry.path().filename().string()) != 0 && is_own(entry.path().string())) found.push_back(entry.path());
  return found;
}

}  // namespace

std::string job_name(uint64_t job) { return fmt::format("{}{:0{}x}.", file_prefix, job, job_digits); }

uint64_t job_from(std::string_view name) {
  uint64_t job = 0;
  if (!name.starts_with(file_prefix) || name.size() <= file_prefix.size() + job_digits) return 0;
  const char* const end = name.data() + file_prefix.size() + job_digits;
  const auto [last, error] = std::from_chars(name.data() + file_prefix.size(), end, job, 16);
  return error == std::errc{} && last == end && *end == '.' ? job : 0;
}

uint64_t read_job(const std::string& folder) {
  std::string name;
  std::getline(std::ifstream(folder + "/" + job_file), name);
  return job_from(name);
}

std::string RecorderPages::shared_path(uint64_t job, const std::string& name) {
  return shared_folder() + "/" + job_name(job) + name;
}

void RecorderPages::remove_shared(uint64_t job) {
  for (const fs::path& path : files_of_jobs())
    if (job_from(path.filename().string()) == job) discard(path);
}

void RecorderPages::remove_forgotten() {
  std::map<uint64_t, bool> over;  // true if the job is over
  for (const fs::path& path : files_of_jobs()) {
    std::error_code gone;
    // This is when it was created: writes to mapped memory do not change it.
    const auto written = fs::last_write_time(path, gone);
    const bool old = !gone && fs::file_time_type::clock::now() - written > std::chrono::hours(24);
    const auto page = old ? read_copy(path.string(), File::Use::read_own) : nullptr;
    const RankState state = page ? state_of(*page) : RankState::dead;
    const bool lives = state == RankState::running || state == RankState::stopped;
    over.try_emplace(job_from(path.filename().string()), true).first->second &= old && !lives;
  }
  for (const auto& [job, is_over] : over)
    if (is_over) remove_shared(job);
}

RecorderPages::RecorderPages(uint64_t job, int rank, const std::vector<std::string>& machines)
    : job_(job), rank_(rank), size_(static_cast<int>(machines.size())) {
  const std::string& here = machines[static_cast<size_t>(rank)];
  for (int r = 0; r < size_; r++)
    if (machines[static_cast<size_t>(r)] == here) here_.push_back(r);
  try {
    shared_ = std::make_unique<SharedMemory>(shared_path(job, std::to_string(rank)), sizeof(RecorderPage));
    mine_ = static_cast<RecorderPage*>(shared_->data());
  } catch (const Error&) {
    own_ = std::make_unique<RecorderPage>();
    mine_ = own_.get();
  }
  pages_[rank] = mine_;
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

void RecorderPages::open_others() {
  for (const int r : here_) try {
      if (r == rank_) continue;
      auto file = std::make_unique<MappedFile>(shared_path(job_, std::to_string(r)), File::Use::read_own);
      if (file->bytes().size() != sizeof(RecorderPage)) continue;
      pages_[r] = reinterpret_cast<const RecorderPage*>(file->bytes().data());
      mapped_.push_back(std::move(file));
    } catch (const Error&) {  // it has none, or none that is visible here
    }
}

std::unique_ptr<RecorderPage> RecorderPages::copy_of(int rank) const {
  const auto found = pages_.find(rank);
  if (found == pages_.end()) return nullptr;
  const RecorderPage* page = found->second;
  auto copy = std::make_unique<RecorderPage>();
  const int64_t last = page->begun.load(std::memory_order_acquire);
  std::memcpy(static_cast<void*>(copy.get()), static_cast<const void*>(page), sizeof(RecorderPage));
  std::atomic_thread_fence(std::memory_order_acquire);
  // The rank continues meanwhile: a call whose place may have been reused is dropped.
  const int64_t next = page->begun.load(std::memory_order_relaxed) + 1;
  for (int64_t t = RecorderPage::oldest(last); t < std::min(last + 1, RecorderPage::oldest(next)); t++)
    copy->slot(t).ticket = 0;
  copy->begun = last;
  copy->seen_state = state_of(*page);
  return copy;
}

std::vector<RankDump> RecorderPages::look(const std::string& folder, fs::file_time_type since) const {
  std::vector<RankDump> all;
  for (int r = 0; r < size_; r++) {
    all.push_back({.rank = r});
    if (const auto copy = copy_of(r)) {
      all.back() = read_page(*copy);
      continue;
    }
    std::error_code absent;
    if (folder.empty() || fs::last_write_time(dump_path(folder, r), absent) < since || absent) continue;
    if (const auto copy = read_copy(dump_path(folder, r)))
      if (copy->job == job_ && copy->rank == r) all.back() = read_page(*copy);
  }
  return all;
}

std::set<RankState> RecorderPages::states_of_others() const {
  std::set<RankState> states;
  for (const auto& [r, page] : pages_)
    if (r != rank_) states.insert(state_of(*page));
  return states;
}

bool RecorderPages::kill_stopped() const {
  bool any = false;
  for (const auto& [r, page] : pages_) {
    const int pid = page->pid;
    if (r != rank_ && state_of(*page) == RankState::stopped && runs_this_program(pid, page->process_start))
      any = ::kill(pid, SIGKILL) == 0 || any;
  }
  return any;
}

void RecorderPages::write_dumps(const std::string& folder, bool all) const {
  for (const int r : here_) {
    const auto copy = copy_of(r);
    if (!copy) continue;
    const bool able = copy->seen_state == RankState::running;
    if (!all && r != rank_ && able) continue;
    write_file(dump_path(folder, r), {reinterpret_cast<const char*>(copy.get()), sizeof(RecorderPage)},
               {.replace = true, .durable = false, .aside = fmt::format(".by-{}", rank_)});
  }
}

std::vector<RankDump> read_dumps(const std::string& folder) {
  std::map<int, std::unique_ptr<RecorderPage>> pages;
  int size = 0;
  const auto add = [&](std::unique_ptr<RecorderPage> page) {
    if (!page) return;
    size = std::max(size, page->size);
    pages.try_emplace(page->rank, std::move(page));
  };
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent))
    if (entry.path().filename().string().starts_with("rank-")) add(read_copy(entry.path().string()));
  const uint64_t job = read_job(folder);
  for (const fs::path& path : files_of_jobs()) {
    if (job == 0 || job_from(path.filename().string()) != job) continue;
    auto page = read_copy(path.string(), File::Use::read_own);
    if (page) page->seen_state = state_of(*page);
    add(std::move(page));
  }
  std::vector<RankDump> all;
  for (int r = 0; r < size; r++) all.push_back(pages.contains(r) ? read_page(*pages[r]) : RankDump{.rank = r});
  return all;
}

void check_dumps(const std::string& folder) {
  constexpr const char* ours[] = {job_file, message_file, "rank-", "asked", "end", "warning."};
  std::error_code absent;
  for (fs::directory_iterator at(folder, absent), end; !absent && at != end; at.increment(absent)) {
    const std::string name = at->path().filename().string();
    CHECK(std::ranges::any_of(ours, [&](const char* begin) { return name.starts_with(begin); }),
          "{} is the folder of a job's recorded calls, but {} in it does not belong to a job; move it away, or choose "
          "another run.output",
          folder, name);
  }
}

}  // namespace megalith
