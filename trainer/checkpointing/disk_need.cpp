#include "trainer/checkpointing/disk_need.h"

#include <fmt/format.h>

#include <algorithm>

namespace megalith {

namespace {

std::string size_in_words(double bytes) {
  const char* unit = "KiB";
  double size = bytes / 1024;
  for (const char* larger : {"MiB", "GiB", "TiB"})
    if (size >= 1000) {
      size /= 1024;
      unit = larger;
    }
  return fmt::format("{:.3g} {}", size, unit);
}

int64_t multiples(int64_t after, int64_t last, int64_t every) {
  return every > 0 ? std::max<int64_t>(0, last / every - after / every) : 0;
}

}  // namespace

DiskNeed disk_need(const Config& config, int64_t bytes, int64_t completed, int64_t there, int64_t available) {
  const CheckpointConfig& c = config.checkpoint;
  const auto size = static_cast<double>(bytes);
  int64_t more;
  std::string how;
  if (c.keep > 0) {
    // Up to two more wait to settle, and a new one is written before an old one is deleted.
    const int64_t most = c.keep + (c.settle > 0 ? 2 : 0) + (c.keep_best ? 1 : 0) +
                         multiples(completed, config.train.steps, c.keep_every) + 1;
    more = std::max<int64_t>(1, most - there);
    how = fmt::format("with checkpoint.keep = {} there are up to {} at once", c.keep, most);
  } else {
    more = multiples(completed, config.train.steps - 1, c.every) + 1;  // and the one after the last step
    if (c.keep_best) more += multiples(completed, config.train.steps - 1, config.train.evaluate_every);
    how = "all are kept (checkpoint.keep = 0)";
    if (c.minutes > 0)
      how += fmt::format(", by checkpoint.minutes = {:g} up to {} a day", c.minutes,
                         size_in_words(size * 24 * 60 / c.minutes));
  }
  const double needed = size * static_cast<double>(more);
  return {fmt::format("disk: a checkpoint takes {}; {}; {} {}, and {} has {} free", size_in_words(size), how,
                      more == 1 ? "another takes" : fmt::format("{} more take", more), size_in_words(needed),
                      c.directory, size_in_words(static_cast<double>(available))),
          needed <= static_cast<double>(available)};
}

}  // namespace megalith
