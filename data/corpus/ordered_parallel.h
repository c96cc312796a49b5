// An ordered pipeline: several threads process items from one source, and results are passed on in the items' order. At
// most 3 items for each thread are in flight. The first error stops all threads and is rethrown.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace megalith {

// take(item): fills an item, or returns false at the end; one call at a time. make_worker(): called once by each
// thread, returns a function from an item to a result. hand_on(result): one call at a time, from any thread.
template <class Item, class Result>
void ordered_parallel(int num_threads, const std::function<bool(Item&)>& take,
                      const std::function<std::function<Result(Item&&)>()>& make_worker,
                      const std::function<void(Result&&)>& hand_on) {
  std::mutex source, sink;
  std::condition_variable room;
  int64_t num_taken = 0;               // guarded by source
  int64_t next = 0;                    // guarded by sink: the next result to pass on
  std::map<int64_t, Result> finished;  // guarded by sink
  std::exception_ptr error;            // guarded by sink
  const int64_t most_ahead = 2 * num_threads;

  const auto run = [&] {
    const auto work = make_worker();
    for (;;) {
      Item item;
      int64_t index;
      {
        const std::lock_guard lock(source);
        if (!take(item)) return;
        index = num_taken++;
      }
      Result result = work(std::move(item));
      std::unique_lock lock(sink);
      room.wait(lock, [&] { return error || index - next < most_ahead; });
      if (error) return;
      finished.emplace(index, std::move(result));
      while (!finished.empty() && finished.begin()->first == next) {
        Result ready = std::move(finished.begin()->second);
        finished.erase(finished.begin());
        hand_on(std::move(ready));
        next++;
      }
      room.notify_all();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < num_threads; i++)
      threads.emplace_back([&] {
        try {
          run();
        } catch (...) {
          const std::lock_guard lock(sink);
          if (!error) error = std::current_exception();
          room.notify_all();
        }
      });
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace megalith
