// The folder of a run: run.output/config.toml, log.txt and, by Metrics, metrics.jsonl.
#pragma once

#include "configs/config.h"

namespace megalith {

// Rank 0 creates the folder, writes the resolved config and from then on logs to the console and to log.txt. The other
// ranks keep silent. Errors: a folder or file that cannot be created or written.
void open_run_folder(const Config& config, int rank);

}  // namespace megalith
