// `megalith verify` runs the same few steps under two layouts on the same ranks and compares every tensor by
// difference.h.
//
// After each comparison the second layout takes the weights of the first, but keeps its moments. Otherwise the
// optimizer would amplify rounding errors (see UncertainUpdate), and after the first step small differences would have
// no meaning.
//
// The batches come from data.train or, if that is empty, are made up; the weights come from checkpoint.init_from or
// train.seed. Nothing is written to disk.
//
// A rank holds both layouts and, in f32, the weights, gradients and 2 L + 3 residuals of its rows under both. The
// tensors to compare are divided among the ranks, which hold one whole tensor of each layout at a time and 8 bytes for
// each element of their parameters.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/session/session.h"

namespace megalith {

struct VerifyOptions {
  std::string config;                  // path
  std::vector<std::string> overrides;  // both layouts
  std::vector<std::string> against;    // second layout, after `overrides`
  int64_t steps = 3;
  double tolerance = 1;  // factor
  bool all = false;      // print every tensor of every step
  // Tests verify itself: "[STEP:]NAME" adds 1 to the middle element of the second layout's tensor. Step 0 has the
  // initial weights; the default is the first step that records the tensor. Later computation uses the changed value
  // unless the tensor is recorded only after the step.
  std::string inject;
};

// Throws an error for keys other than parallel.*, memory.*, precision.*, batch.microbatch_size, run.device and
// communication.backend, which change the results of a step.
void check_against(const std::vector<std::string>& against);

// Collective. Prints on rank 0 and returns whether everything is within its tolerance. JobError: wrong input.
bool run_verify(const VerifyOptions& options, const Session& session);

}  // namespace megalith
