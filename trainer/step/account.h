// Breaks down the time of a step, predicted (trainer/planner/time_line.h) and measured (step_clock.h), by the same
// names. All functions are pure.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/stream/cost.h"
#include "trainer/communication/mesh_shape.h"

namespace megalith {

// As predicted; in brackets, the meaning for a measurement if it differs.
enum class Account : uint8_t {
  gemm,
  attention,
  elementwise,
  optimizer,    // update and norm
  directions,   // Muon's work on directions, and its waits for the tensor-parallel group
  slowed,       // work that takes longer while a transfer is in progress (measured: part of the work itself)
  gathers,      // waits for weights (measured: as for all waits, this includes waiting for the slowest rank)
  scatters,     // waits for sums of gradients over the shard group, and for Muon's exchanges there
  tensor_sums,  // waits for the tensor-parallel group
  copy_sums,    // waits for sums over copies
  messages,     // waits while a message is in transfer (measured: the calls that begin one)
  bubble,       // waits for another stage to begin a message, or at the end (measured: and for the message)
  host_copies,  // waits for copies between device and host
  input,        // tokens, read and handed over
  launches,     // waits for the host
  evaluation,   // measured: between two steps
  sampling,     // measured: likewise (train.sample_every)
  checkpoint,   // measured: likewise
  elsewhere,    // predicted: what calibration adds to the model; measured: outside of everything named here
};
constexpr size_t num_accounts = 19;
const char* name_of(Account account);

using Accounts = std::array<double, num_accounts>;  // seconds
inline double& at(Accounts& accounts, Account account) { return accounts[static_cast<size_t>(account)]; }
inline double at(const Accounts& accounts, Account account) { return accounts[static_cast<size_t>(account)]; }
double total(const Accounts& accounts);
Accounts& operator+=(Accounts& a, const Accounts& b);

Account account_of_op(const Cost& cost);
Account account_of_wait(Channel channel, Transfer transfer);

// Activities may be nested. Each moment counts for the innermost one, so the accounts of a period always add up to its
// length.
class Laps {
 public:
  // From `now` on, time outside of all activities counts for `otherwise`.
  Laps(double now, Account otherwise) : last_(now), open_{otherwise} {}

  void enter(double now, Account account) {
    pass(now);
    open_.push_back(account);
  }
  void leave(double now) {
    pass(now);
    open_.pop_back();
  }
  // Returns the accounts since the last take(), including open activities.
  const Accounts& until(double now) {
    pass(now);
    return spent_;
  }
  Accounts take(double now) {
    pass(now);
    return std::exchange(spent_, {});
  }

 private:
  void pass(double now) {
    at(spent_, open_.back()) += now - last_;
    last_ = now;
  }

  double last_;
  std::vector<Account> open_;
  Accounts spent_{};
};

// Returns the accounts of all ranks for a step, computed on one of them. `so_far` has what each rank, including this
// one, spent from the end of the previous step to the beginning of the sum that all ranks wait for, and `mine` all that
// this rank spent. The sum ends for all at once: a rank that began it earlier waited longer. After it all ranks do the
// same as this one. So the accounts of each rank add up to the same time as this one's.
std::vector<Accounts> accounts_of_ranks(const std::vector<Accounts>& so_far, size_t this_rank, const Accounts& mine);

Accounts mean(const std::vector<Accounts>& ranks);
// Returns the rank that waits least for others.
size_t slowest(const std::vector<Accounts>& ranks);

}  // namespace megalith
