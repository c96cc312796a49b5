// The orders in which the samples of a run came: a checkpoint lists them ("orders", checkpoints/FORMAT.md). A run whose
// data has changed uses the list to continue in each source where it was.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/samples/loader.h"
#include "trainer/checkpointing/run_fingerprint.h"

namespace megalith {

// An order of samples that begins at some step of a run.
struct OrderRecord {
  int64_t step = 0, sample = 0;  // completed steps, and samples trained on, before it
  int64_t sequence_length = 0;   // 0: an older checkpoint does not have it
  bool pack = true;
  std::vector<RunFingerprint::Source> sources;
  SampleOrder order{{1}, Blend({1}), false, 0};
  // True for a record of an older version, which counted samples from the beginning of the run in all records.
  bool counts_from_start = false;

  // Returns how the record cuts a source into samples.
  SampleCut cut_of(size_t source) const;
};
// Throws nlohmann's exceptions.
OrderRecord order_from(const nlohmann::json& json);
std::vector<OrderRecord> orders_from(const nlohmann::json& orders);

// Returns the "orders" of a run that continues from `state` (null: from the beginning) after `step` steps and `sample`
// samples, with the sources of `data`, which `here` describes. A source is recognised by its tokens, whatever its name
// and its place in the list, and also if it grew.
nlohmann::json orders_with(const nlohmann::json& state, int64_t step, int64_t sample, const RunFingerprint& here,
                           const Loader& data);

// Gives `data` the last of these orders. Error: its sources differ from those of the order.
void follow(const nlohmann::json& orders, Loader& data);

// Returns a line for each source of the last order, and each that is no longer read: where it continues. Empty if there
// is only one order.
std::vector<std::string> describe_change(const nlohmann::json& orders, const Loader& data);

// Returns how many tokens the first samples of a run had. `sequence_length` is that of orders that do not have it.
int64_t tokens_of_samples(const nlohmann::json& orders, int64_t samples, int64_t sequence_length);

}  // namespace megalith
