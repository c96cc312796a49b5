// The ledger of a run, asked: which samples its weights were trained on.
//
// metrics.jsonl says of each step which samples it was given, however often the run was stopped, resumed and resized;
// checkpoints say how far they reach and in which order samples come (checkpoints/FORMAT.md, "orders"). The audit
// follows all steps: each is there once and begins with the sample after those of the step before; every checkpoint
// stands at the end of its step; and in the order of the run no sample of a source comes twice in an epoch, and none is
// absent when the next epoch begins. That a layout gives all samples of a step to its ranks is not in these files; the
// tests of layouts show it.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpointing/course.h"

namespace megalith {

struct Audit {
  std::vector<std::string> told;  // lines: what was found, steps that were skipped, where the order changed
  std::string violation;          // the first; empty: all is well
};

struct LedgerCheckpoint {
  std::string path;
  int64_t step = 0, samples = 0;  // trained on until then
};

// `metrics` is the text of metrics.jsonl; `orders` of the newest checkpoint, ascending.
Audit audit(const std::string& metrics, const std::vector<LedgerCheckpoint>& checkpoints,
            const std::vector<OrderRecord>& orders);

// Of a run folder. Error: it has no metrics or no complete checkpoint, or they are from before samples were recorded.
Audit audit_run(const std::string& run_folder);

}  // namespace megalith
