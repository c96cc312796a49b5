// Remembers what searches have found: `megalith search` plans thousands of layouts whose pipelines are the same.
#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "trainer/schedule/schedule.h"

namespace megalith {

// Threads may share it.
template <class Choice>
class KnownChoices {
 public:
  // Returns what `find` returned for an equal pipeline and equal `bounds`, or else calls it.
  template <class F>
  Choice of(const PipelineShape& shape, const std::vector<int64_t>& bounds, F find) {
    std::vector<int64_t> key{static_cast<int64_t>(shape.kind), shape.stages,       shape.virtual_stages,
                             shape.active_microbatches,        shape.microbatches, shape.message};
    key.insert(key.end(), bounds.begin(), bounds.end());
    for (const ChunkTimes& t : shape.times) key.insert(key.end(), {t.forward, t.input, t.weights, t.sum});
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = known_.find(key); found != known_.end()) return found->second;
    }
    Choice choice = find();
    const std::lock_guard lock(mutex_);
    if (known_.size() >= most_known) known_.clear();
    known_.emplace(std::move(key), choice);
    return choice;
  }

 private:
  static constexpr size_t most_known = 4096;
  std::mutex mutex_;
  std::map<std::vector<int64_t>, Choice> known_;
};

}  // namespace megalith
