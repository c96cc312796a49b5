#include "kernels/system/long_work.h"

#include <algorithm>
#include <chrono>

namespace megalith {

namespace {

std::atomic<WorkDisplay*> free_display = nullptr;  // null while it shows other work

constexpr int64_t between_calls = 100'000'000;  // nanoseconds

int64_t now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void show_long_work(WorkDisplay* display) { free_display = display; }

LongWork::LongWork(const std::string& what, int64_t total)
    : display_(free_display.exchange(nullptr)), total_(std::max(total, int64_t{1})) {
  if (display_) display_->begin(what);
  next_ = now() + between_calls;
}

LongWork::~LongWork() {
  if (!display_) return;
  display_->end();
  free_display = display_;
}

void LongWork::advance(int64_t amount) {
  const int64_t done = done_ += amount;
  if (!display_) return;
  const int64_t time = now();
  int64_t due = next_;
  // One thread gets the next call; the time until the one after that is long enough for it to return.
  if (time < due || !next_.compare_exchange_strong(due, time + between_calls)) return;
  display_->show(std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0));
}

}  // namespace megalith
