#include "trainer/session/watched_session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <list>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "trainer/doctor/diagnosis.h"
#include "trainer/machine/machine.h"
#include "trainer/machine/terminal.h"
#include "trainer/session/last_word.h"
#include "trainer/session/recorder_pages.h"

namespace megalith {

namespace {

constexpr double tick = 0.1;             // seconds between two checks of its own page
constexpr double shortest = 0.2;         // seconds of waiting before others are checked
constexpr double longest_quiet = 60;     // maximum seconds of waiting before the first warning
constexpr double between_questions = 1;  // seconds between two checks of the folder, if there are several nodes
constexpr double time_to_answer = 3;     // seconds for other nodes to write their dumps
// Seconds to wait before a diagnosis, so that all ranks have stopped at the failed call.
constexpr double time_to_agree = 1;
constexpr double time_to_be_ended = 10;  // seconds for a rank that lets another one report
constexpr double time_to_notice = 2;     // seconds for the launcher to notice that a rank was killed

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

double steady_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

class WatchedSession::Watchdog {
 public:
  Watchdog(const Session& session, double timeout, uint64_t job, const std::vector<std::string>& machines)
      : session_(session),
        timeout_(timeout),
        job_(job),
        pages_(job, session.rank(), machines),
        recorder_(pages_.mine()),
        ranks_(recorder_, session_id(), session_group, session.rank(), session.size()) {
    recorder_.on_failure([this] { explain_failure(); });
  }
  ~Watchdog() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  void start() {
    pages_.open_others();
    thread_ = std::thread([this] { watch(); });
  }
  RecordedGroup& ranks() { return ranks_; }
  void end_with(RankState ending) { pages_.mine().ending = ending; }
  uint64_t job() const { return job_; }
  // If no process will read them later, the job leaves no files.
  [[noreturn]] void abort(int status) {
    end_with(RankState::gave_up);
    if (files().folder.empty()) RecorderPages::remove_shared(job_);
    session_.abort(status);
    std::_Exit(status);  // not reached
  }

  struct Files {
    std::string folder, log;  // empty: not set yet
    int64_t log_begin = 0;    // bytes of it before this job
  };
  const Files& files() const { return *files_; }
  void dump_into(const std::string& folder, const std::string& log) {
    std::error_code absent;
    const auto bytes = std::filesystem::file_size(log, absent);
    files_ = &all_files_.emplace_back(Files{folder, log, absent ? 0 : static_cast<int64_t>(bytes)});
  }

 private:
  uint64_t session_id() const { return job_ | 1; }

  void watch() {
    for (double last = steady_now(); !stop_; pause(tick)) {
      const double now = steady_now();
      watched_ += std::min(now - last, 1.0);
      last = now;
      pages_.mine().now = 1 + static_cast<uint32_t>(100 * watched_);
      try {
        answer();
        look();
      } catch (const std::exception&) {  // for example out of memory: the next check may succeed
      }
    }
  }

  // How long the call in which this rank has waited longest has lasted, in seconds.
  struct Waited {
    double in_step = 0, outside = 0;
  };
  Waited waited() {
    Waited waited;
    const RecorderPage& page = pages_.mine();
    for (const RecorderPage::Slot& slot : page.slots) {
      const int64_t ticket = slot.ticket;
      const uint32_t waits = slot.waits;
      double& longest = slot.group == session_id() ? waited.outside : waited.in_step;
      if (slot.ended != 0 || waits == 0 || ticket == 0 || slot.ticket != ticket) continue;
      longest = std::max(longest, static_cast<double>(page.now - waits) / 100);
    }
    return waited;
  }

  void look() {
    const auto [in_step, outside] = waited();
    const double seconds = std::max(in_step, outside);
    if (seconds < shortest) {
      next_warning_ = first_warning();
      return;
    }
    const std::set<RankState> others = pages_.states_of_others();
    if (others.contains(RankState::gave_up)) {  // the launcher ends this rank as well, or it ends by itself
      if (ended_ == 0) ended_ = watched_;
      if (watched_ - ended_ > time_to_be_ended) abort(1);
      return;
    }
    if (others.contains(RankState::dead)) return end(diagnose(seen(), 0));
    const bool waits_in_step = in_step >= shortest;
    if (in_step < timeout_ && seconds < (waits_in_step ? next_warning_ : std::max(next_warning_, timeout_))) return;
    const std::vector<RankDump> dumps = asked();
    const double least = std::min(shortest, timeout_ / 2);
    const Diagnosis found = diagnose(dumps, least);
    if (waited().in_step >= timeout_ || (outside >= timeout_ && nobody_works(dumps, least)))
      return end(found, fmt::format("; communication.timeout = {:g} s", timeout_));
    next_warning_ = 4 * seconds;
    warn(found, seconds, waits_in_step);
  }
  double first_warning() const { return std::min(timeout_ / 4, longest_quiet); }
  static bool nobody_works(const std::vector<RankDump>& dumps, double least) {
    return std::ranges::none_of(dumps, [least](const RankDump& r) {
      return r.state == RankState::unseen || (r.state == RankState::running && !r.blocked_call(least));
    });
  }

  void warn(const Diagnosis& found, double seconds, bool in_step) {
    if (found.kind == Diagnosis::Kind::none) return;
    const auto nth = static_cast<int>(seconds / first_warning());
    if (!take(fmt::format("warning.{}.{}.{}", found.culprits.front(), found.step, nth))) return;
    const std::string limit =
        fmt::format("; the job ends when a wait has lasted {:g} s (communication.timeout)", timeout_);
    say(fmt::format("warning: rank {} has waited for {:.1f} s: {}{}", session_.rank(), seconds, found.text,
                    in_step ? limit : ""));
  }

  // One rank reports for all, and ends the job.
  void end(const Diagnosis& found, const std::string& more = "") {
    if (found.kind == Diagnosis::Kind::gave_up) return;  // that rank's own error ends the job
    const bool first = take("end");
    if (!first || pages_.states_of_others().contains(RankState::gave_up)) {
      if (first) RecorderPages::remove_shared(job_);  // the rank that reported may have removed it already
      pause(time_to_be_ended);
      abort(1);
    }
    const std::string text = found.text + more;
    const std::string &folder = files().folder, run = std::filesystem::path(folder).parent_path().string();
    say(text + (folder.empty() ? "" : "; for details: megalith doctor " + run), last_word_begin);
    try {
      if (!folder.empty()) {
        write_file(folder + "/" + message_file, text + "\n", {.replace = true, .durable = false});
        pages_.write_dumps(folder, true);
      }
    } catch (const std::exception&) {  // it has been reported
    }
    end_with(RankState::gave_up);
    // One death at a time: Open MPI 4's mpirun may miss one of two.
    if (pages_.kill_stopped()) pause(time_to_notice);
    RecorderPages::remove_shared(job_);
    abort(1);
  }

  // Runs on the rank's own thread, after a failed call: other ranks may be the cause.
  void explain_failure() noexcept {
    try {
      pause(time_to_agree);
      const Diagnosis found = diagnose(seen(), 0);
      using Kind = Diagnosis::Kind;
      for (const Kind cause : {Kind::died, Kind::another_call, Kind::another_size, Kind::skipped})
        if (found.kind == cause) end(found);
    } catch (const std::exception&) {  // then only the call's own error is reported
    }
  }

  // Acquires the right to report a warning or the end, which only one rank gets. If others cannot be kept out, as on a
  // full disk, each rank reports.
  bool take(const std::string& name) {
    const std::string& folder = files().folder;
    const bool shared = pages_.on_one_node() || folder.empty();
    const std::string path = shared ? RecorderPages::shared_path(job_, name) : folder + "/" + name;
    try {
      const File file(path, shared ? File::Use::create_own : File::Use::create);
      return true;
    } catch (const Error&) {
      std::error_code absent;
      return !std::filesystem::exists(path, absent);
    }
  }

  // Reports on the console, and in the log after `as`; a log that has its last line gets no other.
  void say(const std::string& text, const std::string& as = "") {
    say_error(text);
    const Files& to = files();
    const std::time_t now = std::time(nullptr);
    char time[64] = "";
    std::strftime(time, sizeof time, log_time, std::localtime(&now));
    try {
      if (to.log.empty()) return;
      if (!as.empty() && std::filesystem::exists(to.log) && has_last_word(to.log, to.log_begin)) return;
      File(to.log, File::Use::append).append(fmt::format("{} {}{}\n", time, as, text));
    } catch (const std::exception&) {  // the console has it
    }
  }

  std::vector<RankDump> seen() const { return pages_.look("", {}); }
  // Also reads dumps of other nodes, which need time to answer; nodes that cannot be asked are unseen.
  std::vector<RankDump> asked() {
    const std::string& folder = files().folder;
    if (folder.empty() || pages_.on_one_node()) return seen();
    try {
      const std::string question = folder + "/asked";
      write_file(question, fmt::format("{} {}", session_.rank(), steady_now()),
                 {.replace = true, .durable = false, .aside = fmt::format(".by-{}", session_.rank())});
      const auto since = std::filesystem::last_write_time(question);
      for (double spent = 0;; spent += tick, pause(tick)) {
        const std::vector<RankDump> all = pages_.look(folder, since);
        const auto unseen = std::ranges::find(all, RankState::unseen, &RankDump::state);
        if (unseen == all.end() || spent >= time_to_answer) return all;
      }
    } catch (const std::exception&) {  // a full disk
      return seen();
    }
  }
  void answer() {
    if (pages_.on_one_node() || files().folder.empty() || watched_ < next_answer_) return;
    next_answer_ = watched_ + between_questions;
    std::string question;
    std::getline(std::ifstream(files().folder + "/asked"), question);
    if (question.empty() || question == answered_) return;
    answered_ = question;
    pages_.write_dumps(files().folder, false);
  }

  const Session& session_;
  double timeout_;
  uint64_t job_;
  RecorderPages pages_;
  FlightRecorder recorder_;
  RecordedGroup ranks_;

  std::list<Files> all_files_ = {{}};
  std::atomic<const Files*> files_ = &all_files_.front();

  // Used only by the watch's thread.
  double watched_ = 0, next_answer_ = 0;  // seconds since the start
  double next_warning_ = 0;               // seconds of waiting
  double ended_ = 0;                      // when another rank was seen to have ended the job; 0: not yet
  std::string answered_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

namespace {

uint64_t agree_on_job(const Session& session) {
  std::random_device random;
  return job_from(session.broadcast_text(job_name(uint64_t{random()} << 32 | random() | 1)));
}

}  // namespace

WatchedSession::WatchedSession(std::unique_ptr<Session> session, double timeout) : session_(std::move(session)) {
  rank_ = session_->rank();
  size_ = session_->size();
  node_rank_ = session_->rank_on_this_node();
  node_size_ = session_->ranks_on_this_node();
  const uint64_t job = agree_on_job(*session_);
  watchdog_ = std::make_unique<Watchdog>(*session_, timeout, job, session_->all_gather_text(machine_id()));
  if (node_rank_ == 0) RecorderPages::remove_forgotten();
  session_->all_gather_text("");  // every page exists
  watchdog_->start();
}

WatchedSession::~WatchedSession() {
  watchdog_->end_with(RankState::left);
  const std::string folder = watchdog_->files().folder;
  const uint64_t job = watchdog_->job();
  watchdog_.reset();
  if (rank_on_this_node() == 0) RecorderPages::remove_shared(job);
  if (rank_ != 0 || folder.empty()) return;
  try {
    remove_all(folder);
  } catch (const Error&) {  // it says that the job runs, and the next job can tell that it does not
  }
}

RecordedGroup* WatchedSession::recorded() const { return &watchdog_->ranks(); }

std::vector<std::string> WatchedSession::all_gather_text(const std::string& mine) const {
  const InCall in_call(recorded(), Transfer::texts);
  return session_->all_gather_text(mine);
}

std::string WatchedSession::broadcast_text(const std::string& text) const {
  const InCall in_call(recorded(), Transfer::text);
  return session_->broadcast_text(text);
}

namespace {

// Removes an earlier job's files or, if that fails, moves them aside and reports it.
std::string clear(const std::string& folder) try {
  remove_all(folder);
  return "";
} catch (const Error& e) {
  std::string aside;
  for (int k = 1; aside.empty() || std::filesystem::exists(aside); k++) aside = fmt::format("{}.earlier-{}", folder, k);
  move_file(folder, aside);
  return fmt::format("{}; it is now {}", e.what(), aside);
}

}  // namespace

std::string WatchedSession::dump_into(const std::string& folder, const std::string& log) const {
  std::string earlier, trouble, made = "made";
  if (rank_ == 0) try {
      earlier = job_name(read_job(folder));
      trouble = clear(folder);
      make_folders(folder, "choose another run.output");
      write_file(folder + "/" + job_file, job_name(watchdog_->job()) + "\n", {.replace = true, .durable = false});
    } catch (const Error& e) {
      trouble = fmt::format("{}; if the job hangs, `megalith doctor` will find nothing there", e.what());
      made.clear();
    }
  const uint64_t before = job_from(broadcast_text(earlier));
  if (before != 0 && rank_on_this_node() == 0) RecorderPages::remove_shared(before);
  if (!broadcast_text(made).empty()) watchdog_->dump_into(folder, log);
  return trouble;
}

void WatchedSession::abort(int status) const { watchdog_->abort(status); }

}  // namespace megalith
