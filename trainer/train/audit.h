// The audit checks which samples a run's weights were trained on.
//
// metrics.jsonl has the samples of each step; checkpoints have their number of samples and the order of all
// (checkpoints/FORMAT.md, "orders"). The audit checks that every step occurs once and begins after the samples of the
// previous step, that every checkpoint is at the end of its step, and that every epoch has each sample of a source
// once. If the data was changed, it checks that each source continues where it was, with the tokens that were still to
// come in its epoch. It cannot see whether the ranks trained on all samples of a step, nor, if the examples of
// conversations were cut anew, which of them are new samples.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpointing/sample_orders.h"

namespace megalith {

struct Audit {
  std::vector<std::string> lines;  // findings, skipped steps, changes of the order
  std::string violation;           // the first; empty: none
};

struct LedgerCheckpoint {
  std::string path;
  int64_t step = 0, samples = 0;  // samples trained on up to the step
};

// `metrics` is the text of metrics.jsonl; `orders` are the newest checkpoint's, ascending.
Audit audit(const std::string& metrics, const std::vector<LedgerCheckpoint>& checkpoints,
            const std::vector<OrderRecord>& orders);

// Error: the folder has no metrics or no complete checkpoint, or they are from before samples were recorded.
Audit audit_run(const std::string& run_folder);

}  // namespace megalith
