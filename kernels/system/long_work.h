// Work that may take long, shown to the user who waits for it.
//
//   LongWork work("verifying runs/a/checkpoints/step-00000100", bytes);
//   for (...) work.advance(bytes_of_this_part);
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace megalith {

// Shows one piece of work at a time. Its calls come one after another, from the threads that do the work.
class WorkDisplay {
 public:
  virtual ~WorkDisplay() = default;
  virtual void begin(const std::string& what) = 0;
  virtual void show(double share) = 0;  // in [0, 1]
  virtual void end() = 0;
};

// From now on `display`, which must outlive all work, shows it; null: nothing does. Called before any work begins.
void show_long_work(WorkDisplay* display);

class LongWork {
 public:
  // `what` describes the work in a few words, and `total` is the sum of all advances. Work is not shown without a
  // display, nor inside other work.
  LongWork(const std::string& what, int64_t total);
  ~LongWork();
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

  // Any thread may call this, often: the display is called at most ten times a second.
  void advance(int64_t amount);

 private:
  WorkDisplay* display_ = nullptr;  // null: not shown
  const int64_t total_;
  std::atomic<int64_t> done_ = 0, next_ = 0;  // next_: nanoseconds before which the display is not called
};

}  // namespace megalith
