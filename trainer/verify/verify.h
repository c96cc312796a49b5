// `megalith verify`: the same few steps under two layouts, side by side on the same ranks, and what differs. Every
// tensor of a step is put together from all ranks, in order of computation, and compared by the law of difference.h; a
// tensor that is not whole, or of which two ranks hold different bits, is at fault as well.
//
// Every step starts from the same weights: after each comparison the second layout takes over those of the first; its
// moments stay its own. Otherwise the optimizer would amplify rounding errors (see UncertainUpdate), from the second
// step on everything would be as uncertain as its updates, and nothing could be said of a small difference.
//
// The batches are those of data.train or, when that is empty, made-up tokens; the weights those of checkpoint.init_from
// or train.seed. Nothing is written to disk.
//
// Memory: both layouts' own, at the same time, and in f32 what one step shows of both: a rank's weights, gradients and
// 2 L + 3 residuals of its rows. The tensors are dealt out among the ranks to be compared: a rank has one whole tensor
// of each layout at a time, and 8 bytes for each element of its parameters.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/session/session.h"

namespace megalith {

struct VerifyOptions {
  std::string config;                  // path
  std::vector<std::string> overrides;  // of both layouts
  std::vector<std::string> against;    // of the second, after those
  int64_t steps = 3;
  double tolerance = 1;  // factor of all tolerances
  bool all = false;      // print every tensor of every step
  // A test of verify itself: 1 is added to the middle element of a tensor of the second layout, "[STEP:]NAME". Step 0
  // is before the first and has the initial weights; default: the first step that shows the tensor. The step goes on
  // with the changed activation, gradient of one, or initial weight; what it leaves behind is changed when it is shown.
  std::string inject;
};

// The keys of `against` may change how a step is computed, not what: parallel.*, memory.*, precision.*,
// batch.microbatch_size, run.device and communication.backend. Error, naming the key, for any other.
void check_against(const std::vector<std::string>& against);

// Collective. Prints on rank 0; whether everything is within its tolerance. JobError on all ranks for wrong input.
bool run_verify(const VerifyOptions& options, const Session& session);

}  // namespace megalith
