// The run that the tests of the policy decide about.
#pragma once

#include "trainer/train/policy.h"

namespace megalith::policy {

// Ten steps of two sequences on a CPU, all of them to be evaluated and saved at steps 4, 8 and 10.
inline Rules ten_steps() {
  return {.steps = 10,
          .batch = 2,
          .evaluate_every = 4,
          .save_every = 4,
          .max_bad_steps = 2,
          .validates = true,
          .asynchronous_saves = true,
          .patience = 1};
}

}  // namespace megalith::policy
