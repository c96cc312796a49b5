#include "trainer/session/file_session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "kernels/system/files.h"
#include "kernels/system/json.h"
#include "trainer/machine/machine.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

class Waiting {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  void pause() const {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(seconds() / 10, 0.0005, 1.0)));
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Returns a file's text, or "" if it cannot be read yet.
std::string read_if_there(const std::string& path) {
  try {
    return read_file(path);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

class FileSession::Room {
 public:
  Room(const std::string& folder, const Launch& launch, double timeout)
      : folder_(folder), rank_(launch.rank), size_(launch.size), timeout_(timeout) {
    std::string job = launch.job;
    for (char& c : job)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
    prefix_ = folder_ + "/" + job + ".";
  }
  const std::string& folder() const { return folder_; }

  // Waits for all ranks. Returns the machine of each.
  std::vector<std::string> enter() {
    make_folders(folder_, "the ranks connect through it");
    std::random_device random;
    const std::string number = fmt::format("{:08x}{:08x}", random(), random());
    rank_ == 0 ? open_room(number) : find_room(number);
    std::vector<std::string> all = exchange_all(number + " " + machine_id());
    if (rank_ == 0) discard(start());
    prefix_.clear();  // the next job's files may exist already
    CHECK(all[static_cast<size_t>(rank_)].starts_with(number),
          "another process is also rank {} of {}; start each rank once, and one job at a time in {}", rank_, size_,
          folder_);
    for (std::string& text : all) text.erase(0, number.size());
    return all;
  }

  // Returns the texts of all ranks.
  std::vector<std::string> exchange_all(const std::string& mine) {
    return from_cbor(exchange(mine, true)).get<std::vector<std::string>>();
  }

  // With `parts`, every rank brings a text and rank 0 makes the list of them; otherwise only rank 0 brings one.
  std::string exchange(const std::string& mine, bool parts) {
    exchange_++;
    if (parts) publish(in_room(part(rank_)), mine);
    if (parts || rank_ != 0) wait(parts);
    if (rank_ != 0) return read_file(in_room(whole()));
    std::string text;
    if (parts) {
      nlohmann::json texts;
      for (int r = 0; r < size_; r++) texts.push_back(read_file(in_room(part(r))));
      text = to_cbor(texts);
      // A rank that has reached this exchange has finished the earlier ones.
      for (const std::string& name : std::exchange(wholes_, {})) discard(in_room(name));
    }
    publish(in_room(whole()), parts ? text : mine);
    for (int r = 0; parts && r < size_; r++) discard(in_room(part(r)));
    wholes_.push_back(whole());
    return parts ? text : mine;
  }

  // Throws the error with which another rank has left, if any.
  void check() const { check(look()); }

  // `error` is the other rank's error if a rank leaves because of it.
  void leave(std::string error) const noexcept {
    try {
      if (is_coming_in()) discard(rank_ == 0 ? start() : hello(rank_));
      if (room_.empty()) return;
      if (const std::string earlier = error.empty() ? "" : said_by_leavers(look()); !earlier.empty()) error = earlier;
      publish(in_room(notice(rank_)), error);
      const Names names = look();
      for (int r = 0; r < size_; r++)
        if (!names.contains(notice(r))) return;
      remove_all(room_);
    } catch (const std::exception&) {
      // The room is gone, or cannot be written: this was an error before, or the job is over.
    }
  }

 private:
  using Names = std::set<std::string>;  // names of files in the room

  std::string hello(int rank) const { return fmt::format("{}hello.{}", prefix_, rank); }
  std::string start() const { return prefix_ + "start"; }
  std::string in_room(const std::string& name) const { return room_ + "/" + name; }
  std::string part(int rank) const { return fmt::format("exchange-{}.rank-{}", exchange_, rank); }
  std::string whole() const { return fmt::format("exchange-{}", exchange_); }
  static std::string notice(int rank) { return fmt::format("left.rank-{}", rank); }

  void open_room(const std::string& number) {
    room_ = prefix_ + number;
    make_folders(room_, "the ranks connect through it");
    answer();
  }
  // Until all are in: writes the room's number, and a line for each other rank with its own number.
  void answer() const {
    std::string text = room_.substr(prefix_.size()) + "\n";
    for (int r = 1; r < size_; r++) text += read_if_there(hello(r)) + "\n";
    publish(start(), text);
  }
  void find_room(const std::string& number) {
    for (const Waiting waiting; room_.empty(); waiting.pause()) {
      publish(hello(rank_), number);
      std::istringstream answer(read_if_there(start()));
      std::string room, theirs;
      std::getline(answer, room);
      for (int r = 1; r <= rank_; r++) std::getline(answer, theirs);
      if (answer && theirs == number) room_ = prefix_ + room;
      CHECK(!room_.empty() || waiting.seconds() <= timeout_,
            "rank 0 of {} has not connected through {} within {:g} s; start all ranks at once, on nodes that see the "
            "same folder",
            size_, folder_, timeout_);
    }
    discard(hello(rank_));
  }

  // Returns the ranks that this exchange still waits for.
  std::vector<int> missing(const Names& names, bool parts) const {
    std::vector<int> ranks;
    if (rank_ != 0 && names.contains(whole())) return ranks;
    for (int r = 0; parts && r < size_; r++)
      if (!names.contains(part(r))) ranks.push_back(r);
    if (rank_ != 0 && ranks.empty()) ranks.push_back(0);
    return ranks;
  }

  void wait(bool parts) const {
    for (const Waiting waiting;; waiting.pause()) {
      const Names before = look(), names = look();  // the second look includes files written before a rank's notice
      const std::vector<int> ranks = missing(names, parts);
      if (ranks.empty()) return;
      check(before);
      for (int r : ranks) CHECK(!before.contains(notice(r)), "rank {} of {} has left the job in order", r, size_);
      if (is_coming_in() && waiting.seconds() > timeout_) give_up(ranks);
      if (is_coming_in() && rank_ == 0) answer();
      publish(in_room(fmt::format("waiting.rank-{}", rank_)), "");
    }
  }

  // Other ranks never see an incomplete file. On a network file system this machine sees changes of others in a folder
  // only when it asks the server again, which may take up to a minute; publishing a file there makes it ask.
  void publish(const std::string& path, const std::string& text) const {
    write_file(path, text, {.replace = true, .durable = false, .aside = fmt::format(".by-{}", rank_)});
  }

  Names look() const {
    Names names;
    std::error_code error;
    for (fs::directory_iterator at(room_, error), end; !error && at != end; at.increment(error))
      names.insert(at->path().filename());
    CHECK(!error, "cannot read {}, the folder of this job: {}; has the job ended?", room_, error.message());
    return names;
  }

  std::string said_by_leavers(const Names& names) const {
    for (int r = 0; r < size_; r++)
      if (names.contains(notice(r)))
        if (std::string error = read_if_there(in_room(notice(r))); !error.empty()) return error;
    return "";
  }
  void check(const Names& names) const {
    if (const std::string error = said_by_leavers(names); !error.empty()) FAIL("{}", error);
  }

  // Only watched_session.h judges how long others wait for a rank that has come in.
  [[noreturn]] void give_up(const std::vector<int>& missing) const {
    const bool one = missing.size() == 1;
    const std::string error = fmt::format(
        "rank{} {} of {} {} not connected through {} within {:g} s; start all ranks at once, on nodes that see the "
        "same folder",
        one ? "" : "s", fmt::join(missing, ", "), size_, one ? "has" : "have", folder_, timeout_);
    for (int r : missing) publish(in_room(notice(r)), error);
    FAIL("{}", error);
  }
  bool is_coming_in() const { return !prefix_.empty(); }

  std::string folder_, prefix_;  // prefix_: of this job's files in the folder, until all are in
  std::string room_;             // path; empty: not in yet
  int rank_, size_;
  double timeout_;
  int64_t exchange_ = 0;
  std::vector<std::string> wholes_;  // of rank 0: kept until all ranks have certainly read them
};

FileSession::FileSession(const std::string& folder, const Launch& launch, double timeout_seconds) {
  rank_ = launch.rank;
  size_ = launch.size;
  if (size_ == 1) return;
  room_ = std::make_unique<Room>(folder, launch, timeout_seconds);
  try {
    const std::vector<std::string> machines = room_->enter();
    const auto here = machines.begin() + rank_;
    node_size_ = static_cast<int>(std::count(machines.begin(), machines.end(), *here));
    node_rank_ = static_cast<int>(std::count(machines.begin(), here, *here));
  } catch (...) {
    room_->leave(fmt::format("rank {} of {} could not connect; its own output has the reason", rank_, size_));
    throw;
  }
}

FileSession::~FileSession() {
  if (room_) room_->leave("");
}

std::vector<std::string> FileSession::all_gather_text(const std::string& mine) const {
  return room_ ? room_->exchange_all(mine) : std::vector{mine};
}

std::string FileSession::broadcast_text(const std::string& text) const {
  return room_ ? room_->exchange(text, false) : text;
}

void FileSession::check() const {
  if (room_) room_->check();
}

void FileSession::abort(int status) const {
  if (room_)
    room_->leave(fmt::format("rank {} of {} has ended with an error; its own output has the reason", rank_, size_));
  std::fflush(nullptr);
  std::_Exit(status);
}

void FileSession::require_mpi() const {
  CHECK(!room_,
        "the {} ranks of this job connected through {} and not through MPI, which is needed for transfers that NCCL "
        "does not make; compute on GPUs with communication.backend = nccl, or start the job with MPI and an empty "
        "communication.rendezvous",
        size_, room_->folder());
}

}  // namespace megalith
