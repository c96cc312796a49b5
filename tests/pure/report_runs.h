// Metrics of short runs, for the tests of `megalith report`.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/data/scratch.h"
#include "trainer/report/page.h"

namespace megalith::test {

inline const std::string start_line =
    "{\"start\":{\"completed_steps\":0,\"ranks\":2,\"layout\":\"2 ranks: shard "
    "2\",\"device\":\"CPU\",\"parameters\":3000,"
    "\"tokens\":64,\"memory_bytes\":{\"parameters\":4096,\"scratch\":1024}}}\n";

inline std::string step(int number, double loss, const std::string& more = "") {
  return fmt::format(
      "{{\"step\":{},\"loss\":{},\"grad_norm\":1.5,\"learning_rate\":0.001,\"tokens_so_far\":{},"
      "\"step_seconds\":2,\"tokens_per_second\":32,\"seconds_since_start\":{}{}}}\n",
      number, loss, 64 * number, 2 * number, more);
}

class ReportOfMetrics : public testing::Test {
 protected:
  std::string run(const std::string& name, const std::string& metrics) const {
    scratch_.write(name + "/metrics.jsonl", metrics);
    return scratch_.path(name);
  }
  const test::Scratch scratch_;
};

// The metrics of a run with one step, one held-out loss and its bits per byte.
inline std::string evaluated(const std::string& tokenizer, double loss, double bits) {
  return fmt::format("{{\"start\":{{\"tokenizer\":\"{0}\",\"tokenizer_name\":\"of {0}\"}}}}\n{1}", tokenizer,
                     step(1, loss)) +
         fmt::format("{{\"step\":1,\"validation_loss\":{},\"bits_per_byte\":{}}}\n", loss, bits);
}

}  // namespace megalith::test
