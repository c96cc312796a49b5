#include "trainer/session/watched_session.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "trainer/machine/machine.h"
#include "trainer/machine/terminal.h"
#include "trainer/session/call_pages.h"
#include "trainer/session/hang.h"
#include "trainer/session/last_word.h"

namespace megalith {

namespace {

constexpr double tick = 0.1;             // seconds between two looks at the own page
constexpr double shortest = 0.2;         // seconds of waiting before others are looked at
constexpr double longest_quiet = 60;     // seconds of waiting until the first warning, at most
constexpr double between_questions = 1;  // seconds between two looks into the folder, where there are several nodes
constexpr double time_to_answer = 3;     // seconds for other nodes to publish their pages
constexpr double time_to_agree = 1;      // seconds until ranks are where a failed call has left them
constexpr double time_to_be_ended = 10;  // seconds for a rank that leaves the word to another
constexpr double time_to_notice = 2;     // seconds for the launcher to notice that a rank was killed

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// The machine's steady clock, in ns.
int64_t steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  char text[64] = "";
  std::strftime(text, sizeof text, log_time, std::localtime(&now));
  return text;
}

int64_t length_of_log(const std::string& path) {
  std::error_code absent;
  const auto bytes = std::filesystem::file_size(path, absent);
  return absent ? 0 : static_cast<int64_t>(bytes);
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
        ranks_(recorder_, job | 1, session_group, session.rank(), session.size()) {
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
  // Where nobody will ask what the job has left, it leaves nothing.
  [[noreturn]] void abort(int status) {
    end_with(RankState::gave_up);
    if (folder().empty()) CallPages::remove_shared(job_);
    session_.abort(status);
    std::_Exit(status);  // not reached
  }

  void dump_into(const std::string& folder, const std::string& log) {
    const std::lock_guard lock(mutex_);
    folder_ = folder;
    log_ = log;
    log_begin_ = length_of_log(log);
  }
  std::string folder() {
    const std::lock_guard lock(mutex_);
    return folder_;
  }

 private:
  void watch() {
    for (int64_t last = steady_now(); !stop_; pause(tick)) {
      const int64_t now = steady_now();
      watched_ += std::min(static_cast<double>(now - last) / 1e9, 1.0);
      last = now;
      pages_.mine().now = 1 + static_cast<uint32_t>(100 * watched_);
      try {
        answer();
        look();
      } catch (const std::exception&) {  // of the system, for want of memory, say: another look may go better
      }
    }
  }

  // How long the call has lasted in which this rank has waited for the longest time.
  double waited() {
    const RecorderPage& page = pages_.mine();
    const int64_t begun = page.begun;
    oldest_ = std::max(oldest_, begun - static_cast<int64_t>(RecorderPage::num_slots) + 1);
    uint32_t since = 0;
    bool all_ended = true;
    for (int64_t t = oldest_; t <= begun; t++) {
      const RecorderPage::Slot& slot = page.slots[static_cast<size_t>(t) % RecorderPage::num_slots];
      const bool ended = slot.ended != 0;
      if (all_ended && ended) oldest_ = t + 1;
      all_ended = all_ended && ended;
      const uint32_t waits = slot.waits;
      if (!ended && waits != 0 && (since == 0 || waits < since)) since = waits;
    }
    return since == 0 ? 0 : static_cast<double>(page.now - since) / 100;
  }

  void look() {
    const double seconds = waited();
    if (seconds < shortest) {
      next_warning_ = first_warning();
      next_end_ = timeout_;
      return;
    }
    const std::vector<KnownRank> others = pages_.look_at_processes();
    if (ended_elsewhere(others, seconds)) return;
    if (some(others, RankState::dead)) return end(diagnose(seen(), 0));
    if (seconds >= next_end_) {
      const Hang hang = diagnose(asked(), std::min(shortest, timeout_ / 2));
      if (!may_last(hang)) return end(hang, fmt::format("; communication.timeout = {:g} s", timeout_));
      next_end_ = 1.5 * seconds;
    }
    if (seconds < next_warning_) return;
    next_warning_ = 4 * seconds;
    warn(diagnose(asked(), shortest), seconds);
  }
  // Outside of steps a rank may take as long as it takes, and one that is not seen may be such a rank.
  static bool may_last(const Hang& hang) {
    return hang.outside && (hang.kind == Hang::Kind::busy || hang.kind == Hang::Kind::unseen);
  }
  static bool some(const std::vector<KnownRank>& ranks, RankState state) {
    return std::any_of(ranks.begin(), ranks.end(), [state](const KnownRank& r) { return r.state == state; });
  }
  // Where a rank of this node has ended the job, the launcher ends this one, or it does so itself.
  bool ended_elsewhere(const std::vector<KnownRank>& others, double seconds) {
    if (!some(others, RankState::gave_up)) return false;
    if (ended_ == 0) ended_ = seconds;
    if (seconds - ended_ > time_to_be_ended) abort(1);
    return true;
  }
  double first_warning() const { return std::min(timeout_ / 4, longest_quiet); }

  void warn(const Hang& hang, double seconds) {
    if (hang.kind == Hang::Kind::none || (hang.outside && seconds < timeout_)) return;
    if (!take(fmt::format("warning.{}.{}.{}", hang.ranks.front(), hang.step,
                          static_cast<int>(seconds / first_warning()))))
      return;
    say(fmt::format("warning: rank {} has waited for {:.1f} s: {}{}", session_.rank(), seconds, hang.text,
                    hang.outside ? ""
                                 : fmt::format("; the job ends when a wait has lasted {:g} s "
                                               "(communication.timeout)",
                                               timeout_)));
  }

  // One rank speaks for all, and ends the job.
  void end(const Hang& hang, const std::string& more = "") {
    if (hang.kind == Hang::Kind::none || hang.kind == Hang::Kind::gave_up) return;
    const bool first = take("end");
    if (!first || spoken()) {
      if (first) CallPages::remove_shared(job_);  // as whoever has spoken did before
      pause(time_to_be_ended);
      abort(1);
    }
    const std::string where = folder(), text = hang.text + more;
    say(text + (where.empty() ? ""
                              : "; megalith doctor tells more: " + std::filesystem::path(where).parent_path().string()),
        last_word_begin);
    try {
      if (!where.empty()) {
        write_file(where + "/" + message_file, text + "\n", {.replace = true, .durable = false});
        pages_.publish(where, true);
      }
    } catch (const std::exception&) {  // it has been said
    }
    end_with(RankState::gave_up);
    // One death at a time: Open MPI 4's mpirun may miss one of two.
    if (pages_.kill_stopped()) pause(time_to_notice);
    CallPages::remove_shared(job_);
    abort(1);
  }

  // Whether a rank of this node has given up, or has ended the job and taken away what it had taken.
  bool spoken() const { return some(pages_.look_at_processes(), RankState::gave_up); }

  // On the rank's own thread, where a call has failed: other ranks may be the cause.
  void explain_failure() noexcept {
    try {
      pause(time_to_agree);
      const Hang hang = diagnose(seen(), 0);
      using Kind = Hang::Kind;
      for (const Kind cause : {Kind::died, Kind::another_call, Kind::another_size, Kind::skipped})
        if (hang.kind == cause) end(hang);
    } catch (const std::exception&) {  // then the error of the call says what it knows
    }
  }

  // The word, which only one rank gets: for a warning, for the end. Where it cannot be kept from the others, on a disk
  // that is full, each has it.
  bool take(const std::string& name) {
    const std::string where = folder();
    const bool shared = pages_.on_one_node() || where.empty();
    const std::string path = shared ? CallPages::shared_path(job_, name) : where + "/" + name;
    try {
      const File file(path, shared ? File::Use::create_own : File::Use::create);
      return true;
    } catch (const Error&) {
      std::error_code absent;
      return !std::filesystem::exists(path, absent);
    }
  }

  // On the console, and in the log behind `as`; but a log that has its last word gets no other.
  void say(const std::string& text, const std::string& as = "") {
    say_error(text);
    std::string log;
    int64_t begin = 0;
    {
      const std::lock_guard lock(mutex_);
      log = log_;
      begin = log_begin_;
    }
    try {
      if (log.empty() || (!as.empty() && length_of_log(log) > begin && has_last_word(log, begin))) return;
      File(log, File::Use::append).append(fmt::format("{} {}{}\n", time_of_day(), as, text));
    } catch (const std::exception&) {  // the console has it
    }
  }

  std::vector<KnownRank> seen() const { return pages_.look("", {}); }
  // The same, with those of other nodes, which need time to answer; without these where they cannot be asked.
  std::vector<KnownRank> asked() {
    const std::string where = folder();
    if (where.empty() || pages_.on_one_node()) return seen();
    try {
      const std::string question = where + "/asked";
      write_file(question, fmt::format("{} {}", session_.rank(), steady_now()),
                 {.replace = true, .durable = false, .aside = fmt::format(".by-{}", session_.rank())});
      const auto since = std::filesystem::last_write_time(question);
      std::vector<KnownRank> all;
      for (double spent = 0; spent < time_to_answer; spent += tick) {
        all = pages_.look(where, since);
        if (!some(all, RankState::unseen)) break;
        pause(tick);
      }
      return all;
    } catch (const std::exception&) {  // a disk that is full
      return seen();
    }
  }
  void answer() {
    if (pages_.on_one_node() || watched_ < next_answer_) return;
    next_answer_ = watched_ + between_questions;
    const std::string where = folder();
    if (where.empty()) return;
    std::string question;
    std::getline(std::ifstream(where + "/asked"), question);
    if (question.empty() || question == answered_) return;
    answered_ = question;
    pages_.publish(where, false);
  }

  const Session& session_;
  double timeout_;
  uint64_t job_;
  CallPages pages_;
  FlightRecorder recorder_;
  RecordedGroup ranks_;

  std::mutex mutex_;  // of these
  std::string folder_, log_;
  int64_t log_begin_ = 0;  // bytes of it before this job

  // Of the thread.
  double watched_ = 0, next_answer_ = 0;    // seconds since the start
  double next_warning_ = 0, next_end_ = 0;  // seconds of waiting
  double ended_ = 0;                        // when another rank was seen to have ended the job; 0: not yet
  int64_t oldest_ = 1;                      // call that may not have ended
  std::string answered_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

namespace {

uint64_t agree_on_job(const Session& session) {
  std::random_device random;
  const KnownJob mine{uint64_t{random()} << 32 | random() | 1, session.size()};
  return job_from(session.broadcast_text(to_text(mine))).number;
}

}  // namespace

WatchedSession::WatchedSession(std::unique_ptr<Session> session, double timeout) : session_(std::move(session)) {
  rank_ = session_->rank();
  size_ = session_->size();
  node_rank_ = session_->rank_on_this_node();
  node_size_ = session_->ranks_on_this_node();
  const uint64_t job = agree_on_job(*session_);
  watchdog_ = std::make_unique<Watchdog>(*session_, timeout, job, session_->all_gather_text(machine_id()));
  if (node_rank_ == 0) CallPages::remove_forgotten();
  session_->all_gather_text("");  // every page is there
  watchdog_->start();
}

WatchedSession::~WatchedSession() {
  watchdog_->end_with(RankState::left);
  const std::string folder = watchdog_->folder();
  const uint64_t job = watchdog_->job();
  watchdog_.reset();
  if (rank_on_this_node() == 0) CallPages::remove_shared(job);
  if (rank_ != 0 || folder.empty()) return;
  try {
    remove_all(folder);
  } catch (const Error&) {  // it says that the job runs, and the next one knows better
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

// Removes what an earlier job has left or, where that cannot be, sets it aside, which is said.
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
      std::getline(std::ifstream(folder + "/" + job_file), earlier);
      trouble = clear(folder);
      make_folders(folder, "choose another run.output");
      write_file(folder + "/" + job_file, to_text(KnownJob{watchdog_->job(), size_}),
                 {.replace = true, .durable = false});
    } catch (const Error& e) {
      trouble = fmt::format("{}; of a hang nothing will be kept there for `megalith doctor`", e.what());
      made.clear();
    }
  const KnownJob before = job_from(broadcast_text(earlier));
  if (before.number != 0 && rank_on_this_node() == 0) CallPages::remove_shared(before.number);
  if (!broadcast_text(made).empty()) watchdog_->dump_into(folder, log);
  return trouble;
}

void WatchedSession::abort(int status) const { watchdog_->abort(status); }

}  // namespace megalith
