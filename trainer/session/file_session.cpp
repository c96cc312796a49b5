#include "trainer/session/file_session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "trainer/session/machine.h"

#include "kernels/base/check.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

class Patience {
 public:
  explicit Patience(double limit) : limit_(limit) {}
  bool over() const { return waited() > limit_; }
  void pause() const {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(waited() / 10, 0.0005, 1.0)));
  }

 private:
  double waited() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double limit_;
};

std::string random_number() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::optional<std::string> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}
std::string must_read(const std::string& path) {
  const std::optional<std::string> text = read(path);
  CHECK(text, "cannot read {}: {}; another job in the same folder?", path, std::strerror(errno));
  return *text;
}

void remove(const std::string& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

std::string notice(int rank) { return fmt::format("left.rank-{}", rank); }

}  // namespace

FileSession::FileSession(std::string folder, const Launch& launch, double timeout_seconds)
    : folder_(std::move(folder)), timeout_(timeout_seconds) {
  rank_ = launch.rank;
  size_ = launch.size;
  if (size_ == 1) return;
  std::string job = launch.job;
  for (char& c : job)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  try {
    const std::string number = random_number();
    meet(job, number);
    introduce(number);
  } catch (...) {
    leave(fmt::format("rank {} of {} could not come in; its own output says why", rank_, size_));
    throw;
  }
}

FileSession::~FileSession() { leave(""); }

void FileSession::meet(const std::string& job, const std::string& number) {
  std::error_code error;
  fs::create_directories(folder_, error);
  CHECK(!error, "cannot make the folder {}, where the ranks are to meet: {}", folder_, error.message());
  const std::string prefix = folder_ + "/" + job + ".";
  start_ = prefix + "start";
  hello_ = prefix + "hello.";
  if (rank_ == 0) {
    room_ = prefix + number;
    fs::create_directory(room_, error);
    CHECK(!error, "cannot make the folder {}: {}", room_, error.message());
    return answer();
  }
  hello_ += std::to_string(rank_);
  const Patience patience(timeout_);
  for (;; patience.pause()) {
    publish(hello_, number);
    std::istringstream answer(read(start_).value_or(""));
    std::string room, theirs;
    std::getline(answer, room);
    for (int r = 1; r <= rank_; r++) std::getline(answer, theirs);
    if (answer && theirs == number) {
      room_ = prefix + room;
      return remove(std::exchange(hello_, ""));
    }
    CHECK(!patience.over(),
          "rank 0 of {} has not come to {} within {:g} s; start all ranks at once, on nodes that see the same "
          "folder",
          size_, folder_, timeout_);
  }
}

// Rank 0, until all are in: the room's number, and a line for each other rank with the number that it came with.
void FileSession::answer() const {
  std::string text = room_.substr(room_.rfind('.') + 1) + "\n";
  for (int r = 1; r < size_; r++) text += read(hello_ + std::to_string(r)).value_or("") + "\n";
  publish(start_, text);
}

void FileSession::introduce(const std::string& number) {
  const std::string mine = number + " " + machine_id();
  std::vector<std::string> all = all_gather_text(mine);
  if (rank_ == 0) remove(std::exchange(start_, ""));
  CHECK(all[static_cast<size_t>(rank_)] == mine,
        "another process says that it is rank {} of {} as well; start each rank once, and one job at a time in {}",
        rank_, size_, folder_);
  for (std::string& text : all) text.erase(0, number.size());
  const auto here = all.begin() + rank_;
  node_size_ = static_cast<int>(std::count(all.begin(), all.end(), *here));
  node_rank_ = static_cast<int>(std::count(all.begin(), here, *here));
}

std::vector<std::string> FileSession::all_gather_text(const std::string& mine) const {
  if (size_ == 1) return {mine};
  std::istringstream whole(exchange(mine, false));
  std::vector<std::string> texts(static_cast<size_t>(size_));
  for (std::string& text : texts) {
    size_t length = 0;
    whole >> length;
    text.resize(length);
  }
  whole.get();
  for (std::string& text : texts) whole.read(text.data(), static_cast<std::streamsize>(text.size()));
  CHECK(whole, "an exchange of texts in {} is damaged; another job in the same folder?", room_);
  return texts;
}

std::string FileSession::broadcast_text(const std::string& text) const {
  return size_ == 1 ? text : exchange(text, true);
}

std::string FileSession::exchange(const std::string& mine, bool only_rank_0) const {
  exchange_++;
  if (!only_rank_0) publish(in_room(part(rank_)), mine);
  if (rank_ != 0) {
    const auto missing = [&](const Names& names) {
      const std::vector<int> ranks = only_rank_0 ? std::vector<int>{} : without_part(names);
      return ranks.empty() ? std::vector<int>{0} : ranks;
    };
    wait([&](const Names& names) { return names.contains(whole()); }, missing);
    return must_read(in_room(whole()));
  }
  std::string text = mine;
  if (!only_rank_0) {
    const auto missing = [&](const Names& names) { return without_part(names); };
    wait([&](const Names& names) { return missing(names).empty(); }, missing);
    text = joined_parts();
    // Whoever has come to this exchange is through with those before.
    for (const std::string& name : std::exchange(wholes_, {})) remove(in_room(name));
  }
  publish(in_room(whole()), text);
  wholes_.push_back(whole());
  if (!only_rank_0)
    for (int r = 0; r < size_; r++) remove(in_room(part(r)));
  return text;
}

std::string FileSession::part(int rank) const { return fmt::format("exchange-{}.rank-{}", exchange_, rank); }
std::string FileSession::whole() const { return fmt::format("exchange-{}", exchange_); }

// Their lengths in decimal, then the texts.
std::string FileSession::joined_parts() const {
  std::string lengths, texts;
  for (int r = 0; r < size_; r++) {
    const std::string text = must_read(in_room(part(r)));
    lengths += fmt::format("{} ", text.size());
    texts += text;
  }
  return lengths + texts;
}

std::vector<int> FileSession::without_part(const Names& names) const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; r++)
    if (!names.contains(part(r))) ranks.push_back(r);
  return ranks;
}

// Until ready(names); missing(names) are the ranks that it takes.
template <class Ready, class Missing>
void FileSession::wait(Ready ready, Missing missing) const {
  const Patience patience(timeout_);
  for (;; patience.pause()) {
    const Names before = look();
    if (ready(before)) return;
    const Names names = look();  // what a rank wrote before its notice is here now
    if (ready(names)) return;
    if (const std::string error = told(before); !error.empty()) FAIL("{}", error);
    for (int r : missing(names))
      CHECK(!before.contains(notice(r)), "rank {} of {} has left the job, its work done", r, size_);
    if (patience.over()) give_up(missing(names));
    if (rank_ == 0 && exchange_ == 1) answer();
    publish(in_room(fmt::format("waiting.rank-{}", rank_)), "");
  }
}

// Nobody ever sees half of it. What others have changed in a folder of a network file system is seen only when this
// machine has asked the server again, which it puts off for up to a minute; publishing something there makes it ask.
void FileSession::publish(const std::string& path, const std::string& text) const {
  const std::string aside = fmt::format("{}.by-{}", path, rank_);
  std::ofstream file(aside, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  CHECK(file && std::rename(aside.c_str(), path.c_str()) == 0,
        "cannot write {}: {}; the ranks meet in a folder that all nodes see and may write to", path,
        std::strerror(errno));
}

FileSession::Names FileSession::look() const {
  Names names;
  std::error_code error;
  for (fs::directory_iterator at(room_, error), end; !error && at != end; at.increment(error))
    names.insert(at->path().filename());
  CHECK(!error, "cannot read {}, the folder of this job: {}; has the job ended?", room_, error.message());
  return names;
}

// The error that a rank has left with, if one has.
std::string FileSession::told(const Names& names) const {
  for (int r = 0; r < size_; r++)
    if (names.contains(notice(r)))
      if (std::string error = read(in_room(notice(r))).value_or(""); !error.empty()) return error;
  return "";
}

void FileSession::give_up(const std::vector<int>& missing) const {
  std::string error = fmt::format("rank{} {} of {} {} not ", missing.size() > 1 ? "s" : "", fmt::join(missing, ", "),
                                  size_, missing.size() > 1 ? "have" : "has");
  if (exchange_ == 1)
    error += fmt::format("come to {} within {:g} s; start all ranks at once, on nodes that see the same folder",
                         folder_, timeout_);
  else
    error += fmt::format("been heard of for {:g} s; the process or its node has died, or it waits elsewhere", timeout_);
  for (int r : missing) publish(in_room(notice(r)), error);
  FAIL("{}", error);
}

void FileSession::check() const {
  if (size_ == 1) return;
  if (const std::string error = told(look()); !error.empty()) FAIL("{}", error);
}

void FileSession::leave(const std::string& error) const noexcept {
  if (size_ == 1) return;
  try {
    remove(rank_ == 0 ? start_ : hello_);  // if it did not come so far
    if (room_.empty()) return;
    // Who leaves because of another repeats what that one has told.
    const std::string earlier = error.empty() ? "" : told(look());
    publish(in_room(notice(rank_)), earlier.empty() ? error : earlier);
    const Names names = look();
    for (int r = 0; r < size_; r++)
      if (!names.contains(notice(r))) return;
    std::error_code ignored;
    fs::remove_all(room_, ignored);
  } catch (const std::exception&) {
    // The room is gone, or cannot be written: that has been an error before, or the job is over.
  }
}

void FileSession::abort(int status) const {
  leave(fmt::format("rank {} of {} has ended with an error; its own output says which", rank_, size_));
  std::fflush(nullptr);
  std::_Exit(status);
}

void FileSession::require_mpi() const {
  CHECK(size_ == 1,
        "the {} ranks of this job met in {} and not through MPI, which carries what is not carried by NCCL; compute on "
        "GPUs with communication.backend = nccl, or start the job with MPI and an empty communication.rendezvous",
        size_, folder_);
}

}  // namespace megalith
