#include "trainer/communication/nccl_watch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "kernels/system/check.h"
#include "trainer/machine/terminal.h"

namespace megalith {

namespace {

constexpr auto interval = std::chrono::milliseconds(100);  // between two looks at the flights
constexpr int looks_a_question = 20;                       // for each question to the session, which may read files
constexpr double grace = 5;                                // seconds for the host to find the error by itself

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

NcclWatch::NcclWatch(const Session& session, const NcclLibrary& library)
    : session_(session),
      library_(library),
      gpu_(device::properties().index),
      asking_([this] { ask_on(); }),
      watching_([this] { watch_on(); }) {}

NcclWatch::~NcclWatch() {
  const auto end = [this](bool& stop, std::thread& thread) {
    {
      const std::lock_guard lock(mutex_);
      stop = true;
    }
    stopped_.notify_all();
    thread.join();
  };
  end(stop_asking_, asking_);  // watched to the end
  end(stop_watching_, watching_);
}

void NcclWatch::add(Line& line) {
  const std::lock_guard lock(mutex_);
  lines_.push_back(&line);
}

void NcclWatch::remove(Line& line) {
  const std::lock_guard lock(mutex_);
  std::erase(lines_, &line);
  for (const std::shared_ptr<Flight>& flight : line.flights) flight->told.ended();  // nobody will see it
}

std::shared_ptr<Flight> NcclWatch::next_flight(Line& line, const char* operation, const KeptCall& told) {
  std::shared_ptr<Flight> flight;
  {
    const std::lock_guard lock(mutex_);
    if (!line.landed.empty()) {
      flight = std::move(line.landed.back());
      line.landed.pop_back();
    }
  }
  if (!flight) flight = std::make_shared<Flight>();
  flight->operation = operation;
  flight->told = told;
  flight->seen = flight->ended = false;
  return flight;
}

void NcclWatch::departed(Line& line, std::shared_ptr<Flight> flight) {
  const std::lock_guard lock(mutex_);
  line.flights.push_back(std::move(flight));
}

// Updates the progress of the flights; those that have ended are taken off their lists.
void NcclWatch::ask() {
  std::vector<std::deque<std::shared_ptr<Flight>>> under_way;
  {
    const std::lock_guard lock(mutex_);
    for (const Line* line : lines_) under_way.push_back(line->flights);
  }
  bool progress = false;
  for (const auto& flights : under_way)
    for (const std::shared_ptr<Flight>& flight : flights) {
      const bool over = device::passed(flight->over.get()), begun = over || device::passed(flight->begun.get());
      const std::lock_guard lock(mutex_);
      if (begun && !flight->seen) flight->told.waits();
      flight->seen = begun;
      if (!over) break;
      flight->told.ended();
      flight->ended = progress = true;
    }
  // As long as any transfer ends, those that are under way wait for nothing unusual.
  for (const auto& flights : under_way)
    for (const std::shared_ptr<Flight>& flight : flights)
      if (progress && flight->seen && !flight->ended) flight->told.waits();
  under_way.clear();
  const std::lock_guard lock(mutex_);
  for (Line* line : lines_)
    while (!line->flights.empty() && line->flights.front()->ended) {
      // One that somebody may still wait for is not reused.
      if (line->flights.front().use_count() == 1) line->landed.push_back(line->flights.front());
      line->flights.pop_front();
    }
}

void NcclWatch::check() {
  const std::lock_guard lock(mutex_);
  CHECK(error_.empty(), "{}", error_);
}

bool NcclWatch::found_one() {
  const std::lock_guard lock(mutex_);
  return !error_.empty();
}

// The error; empty where there is none.
std::string NcclWatch::look() const {
  for (const Line* line : lines_) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = library_.async_error(line->comm, &state);
    if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
      return fmt::format("{}: {}: NCCL reports: {}: {}; has another rank or a link died?", line->channel,
                         line->flights.empty() ? "between transfers" : line->flights.front()->operation,
                         library_.error_string(asked != ncclSuccess ? asked : state), library_.last_error(line->comm));
  }
  return "";
}

void NcclWatch::report(const std::string& error) {
  if (error.empty() || !error_.empty()) return;
  error_ = error;
  found_ = Clock::now();
}

void NcclWatch::ask_on() {
  std::unique_lock lock(mutex_, std::defer_lock);
  try {
    device::select(gpu_);
    for (;;) {
      lock.lock();
      if (stopped_.wait_for(lock, interval, [this] { return stop_asking_; })) return;
      lock.unlock();
      ask();
    }
  } catch (const std::exception& e) {
    const std::lock_guard again(mutex_);
    report(e.what());
  }
}

void NcclWatch::watch_on() {
  std::unique_lock lock(mutex_);
  for (int64_t looks = 0; !stopped_.wait_for(lock, interval, [this] { return stop_watching_; }); looks++) {
    if (!error_.empty()) {
      if (seconds(Clock::now() - found_) < grace) continue;
      say_error(fmt::format("rank {}: {}", session_.rank(), error_));
      session_.abort(1);
    }
    std::string error;
    try {
      error = look();
      if (error.empty() && looks % looks_a_question == 0) {
        lock.unlock();
        session_.check();
        lock.lock();
      }
    } catch (const std::exception& e) {
      error = e.what();
    }
    if (!lock.owns_lock()) lock.lock();
    report(error);
  }
}

}  // namespace megalith
