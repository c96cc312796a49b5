// Work on a thread of its own at low priority, so that it takes from those that compute as little as it can.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace megalith {

class Background {
 public:
  // Begins. The work may not throw.
  explicit Background(std::function<void()> work);
  ~Background() { wait(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  bool done() const { return done_; }
  // What the work has written can be read then.
  void wait();

 private:
  std::atomic<bool> done_ = false;
  std::thread thread_;  // the last member: it uses the other
};

}  // namespace megalith
