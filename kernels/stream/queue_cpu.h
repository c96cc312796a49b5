// State that library calls of the CPU's ops keep between calls.
#pragma once

#include <memory>

namespace megalith::cpu {

class Queue {
 public:
  // Made at the first call. All ops of one queue use one type of state.
  template <class State>
  State& state() {
    if (!state_) state_ = std::make_shared<State>();
    return *static_cast<State*>(state_.get());
  }

 private:
  std::shared_ptr<void> state_;
};

}  // namespace megalith::cpu
