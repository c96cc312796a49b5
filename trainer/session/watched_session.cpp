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

#include "trainer/session/call_pages.h"
#include "trainer/session/hang.h"
#include "trainer/session/machine.h"

namespace megalith {

namespace {

constexpr double tick = 0.1;             // seconds between two looks at the own page
constexpr double shortest = 0.2;         // seconds of waiting before others are looked at
constexpr double longest_quiet = 60;     // seconds of waiting until the first warning, at most
constexpr double between_questions = 1;  // seconds between two looks into the folder, where there are several nodes
constexpr double time_to_answer = 3;     // seconds for other nodes to publish their pages
constexpr double time_to_agree = 1;      // seconds until ranks are where a failed call has left them
constexpr double time_to_be_ended = 10;  // seconds for a rank that leaves the word to another

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  char text[64] = "";
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", std::localtime(&now));
  return text;
}

}  // namespace

class WatchedSession::Watchdog {
 public:
  Watchdog(const Session& session, double timeout, uint64_t job, const std::vector<std::string>& machines)
      : session_(session),
        timeout_(timeout),
        job_(job),
        pages_(job, session.rank(), machines),
        ring_(pages_.mine()),
        calls_(ring_, job | 1, session_group, session.rank(), session.size()) {
    ring_.on_failure([this] { explain_failure(); });
  }
  ~Watchdog() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  void start() {
    pages_.open_others();
    thread_ = std::thread([this] { watch(); });
  }
  CallGroup& calls() { return calls_; }
  void end_with(CallPage::Ending ending) { pages_.mine().ending = ending; }
  uint64_t job() const { return job_; }

  void remember_in(const std::string& folder, const std::string& log) {
    const std::lock_guard lock(mutex_);
    folder_ = folder;
    log_ = log;
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
      pages_.mine().heartbeat = now;
      pages_.mine().now = 1 + static_cast<uint32_t>(100 * watched_);
      try {
        answer();
        look();
      } catch (const std::exception&) {  // a disk that is full, or does not answer: what is known goes to the console
      }
    }
  }

  // How long the call has lasted in which this rank has waited for the longest time.
  double waited() {
    const CallPage& page = pages_.mine();
    const int64_t begun = page.begun;
    oldest_ = std::max(oldest_, begun - static_cast<int64_t>(CallPage::num_slots) + 1);
    uint32_t since = 0;
    bool all_ended = true;
    for (int64_t t = oldest_; t <= begun; t++) {
      const CallPage::Slot& slot = page.slots[static_cast<size_t>(t) % CallPage::num_slots];
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
    if (ended_elsewhere(seconds)) return;
    for (const KnownRank& other : pages_.look_at_processes())
      if (other.state == RankState::dead) return end(diagnose(seen(), 0));
    if (seconds >= next_end_) {
      const Hang hang = diagnose(asked(), std::min(shortest, timeout_ / 2));
      const bool may_last = hang.outside && hang.kind == Hang::Kind::busy;
      if (!may_last) return end(hang);
      next_end_ = 1.5 * seconds;
    }
    if (seconds < next_warning_) return;
    next_warning_ = 4 * seconds;
    warn(diagnose(asked(), shortest), seconds);
  }
  // Where a rank of this node has ended the job, the launcher ends this one, or it does so itself.
  bool ended_elsewhere(double seconds) {
    if (!spoken()) return false;
    if (ended_ == 0) ended_ = seconds;
    if (seconds - ended_ > time_to_be_ended) session_.abort(1);
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
  void end(const Hang& hang) {
    if (hang.kind == Hang::Kind::none || hang.kind == Hang::Kind::gave_up) return;
    if (!take("end") || spoken()) {
      pause(time_to_be_ended);
      session_.abort(1);
    }
    const std::string where = folder(), text = hang.text + (hang.hopeless() || where.empty() ? "" : waited_so_long());
    say(text +
        (where.empty() ? "" : "; megalith doctor tells more: " + std::filesystem::path(where).parent_path().string()));
    try {
      if (!where.empty()) {
        write_file(where + "/" + message_file, text + "\n", {.replace = true, .durable = false});
        pages_.publish(where, true);
      }
    } catch (const std::exception&) {  // it has been said
    }
    end_with(CallPage::Ending::gave_up);
    pages_.kill_stopped();
    CallPages::remove_shared(job_);
    session_.abort(1);
  }
  std::string waited_so_long() const { return fmt::format("; communication.timeout = {:g} s", timeout_); }

  // Whether a rank of this node has given up, or has ended the job and taken away what it had taken.
  bool spoken() const {
    const std::vector<KnownRank> others = pages_.look_at_processes();
    return std::any_of(others.begin(), others.end(), [](const KnownRank& r) { return r.state == RankState::gave_up; });
  }

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

  // The word, which only one rank gets: for a warning, for the end.
  bool take(const std::string& name) {
    const std::string where = folder();
    try {
      const std::string path =
          pages_.on_one_node() || where.empty() ? CallPages::shared_path(job_, name) : where + "/" + name;
      const File file(path, File::Use::create);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  void say(const std::string& text) {
    fmt::print(stderr, "megalith: {}\n", text);
    std::fflush(stderr);
    std::string log;
    {
      const std::lock_guard lock(mutex_);
      log = log_;
    }
    try {
      if (!log.empty()) File(log, File::Use::append).append(fmt::format("{} {}\n", time_of_day(), text));
    } catch (const std::exception&) {  // the console has it
    }
  }

  std::vector<KnownRank> seen() const { return pages_.look("", {}); }
  // The same, with those of other nodes, which need time to answer.
  std::vector<KnownRank> asked() {
    const std::string where = folder();
    if (where.empty() || pages_.on_one_node()) return seen();
    const std::string question = where + "/asked";
    write_file(question, fmt::format("{} {}", session_.rank(), steady_now()),
               {.replace = true, .durable = false, .aside = fmt::format(".by-{}", session_.rank())});
    const auto since = std::filesystem::last_write_time(question);
    std::vector<KnownRank> all;
    for (double spent = 0; spent < time_to_answer; spent += tick) {
      all = pages_.look(where, since);
      if (std::none_of(all.begin(), all.end(), [](const KnownRank& r) { return r.state == RankState::unseen; })) break;
      pause(tick);
    }
    return all;
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
  CallRing ring_;
  CallGroup calls_;

  std::mutex mutex_;  // of these two
  std::string folder_, log_;

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
  const uint64_t mine = uint64_t{random()} << 32 | random();
  return std::stoull(session.broadcast_text(std::to_string(mine)));
}

}  // namespace

WatchedSession::WatchedSession(std::unique_ptr<Session> session, double timeout) : session_(std::move(session)) {
  rank_ = session_->rank();
  size_ = session_->size();
  node_rank_ = session_->rank_on_this_node();
  node_size_ = session_->ranks_on_this_node();
  const uint64_t job = agree_on_job(*session_);
  watchdog_ = std::make_unique<Watchdog>(*session_, timeout, job, session_->all_gather_text(machine_id()));
  session_->all_gather_text("");  // every page is there
  watchdog_->start();
}

WatchedSession::~WatchedSession() {
  watchdog_->end_with(CallPage::Ending::in_order);
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

CallGroup* WatchedSession::calls() const { return &watchdog_->calls(); }

std::vector<std::string> WatchedSession::all_gather_text(const std::string& mine) const {
  const InCall in_call(calls(), Call::texts);
  return session_->all_gather_text(mine);
}

std::string WatchedSession::broadcast_text(const std::string& text) const {
  const InCall in_call(calls(), Call::text);
  return session_->broadcast_text(text);
}

void WatchedSession::remember_in(const std::string& folder, const std::string& log) const {
  std::string earlier;
  if (rank_ == 0) {
    std::getline(std::ifstream(folder + "/" + job_file), earlier);
    remove_all(folder);
    make_folders(folder, "choose another run.output");
    write_file(folder + "/" + job_file, fmt::format("{:x} {}\n", watchdog_->job(), size_),
               {.replace = true, .durable = false});
  }
  earlier = broadcast_text(earlier);
  if (!earlier.empty() && rank_on_this_node() == 0) CallPages::remove_shared(std::stoull(earlier, nullptr, 16));
  watchdog_->remember_in(folder, log);
}

void WatchedSession::abort(int status) const {
  watchdog_->end_with(CallPage::Ending::gave_up);
  session_->abort(status);
  std::_Exit(status);  // not reached
}

}  // namespace megalith
