#include "trainer/parallel/schedule.h"

namespace megalith {

std::vector<Action> accumulate(int64_t num_microbatches) {
  std::vector<Action> actions;
  for (int64_t k = 0; k < num_microbatches; k++) {
    actions.push_back({Action::Kind::forward, k});
    actions.push_back({Action::Kind::backward, k});
  }
  return actions;
}

}  // namespace megalith
