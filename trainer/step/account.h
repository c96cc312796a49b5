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

// Predicted, and in brackets what a measurement means by it where that differs.
enum class Account : uint8_t {
  gemm,
  attention,
  elementwise,
  optimizer,    // update and norm
  directions,   // what Muon makes of momentum, and waits for the tensor-parallel group in it
  slowed,       // work that takes longer beside a transfer (measured: part of the work itself)
  gathers,      // waits for weights (measured, as all waits for others: for the slowest of them as well)
  scatters,     // waits for sums of gradients, over the shard group, and for Muon's exchanges there
  tensor_sums,  // waits for the tensor-parallel group
  copy_sums,    // waits for sums over copies
  messages,     // waits while a message travels (measured: the calls that begin one)
  bubble,       // waits for another stage, to begin a message or at the end (measured: and for the message)
  host_copies,  // waits for copies between device and host
  input,        // tokens, read and handed over
  launches,     // waits for the host
  evaluation,   // measured: what lies between two steps
  sampling,     // measured: the same (train.sample_every)
  checkpoint,   // measured: the same
  elsewhere,    // predicted: what calibration finds beside the model; measured: between all that is named here
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

// Time is spent on one thing after another, some of it inside of others: each moment goes to the innermost, so whatever
// is entered and left, the accounts of a stretch add up to it.
class Laps {
 public:
  // From `now` on, outside of everything, time goes to `otherwise`.
  Laps(double now, Account otherwise) : last_(now), open_{otherwise} {}

  void enter(double now, Account account) {
    pass(now);
    open_.push_back(account);
  }
  void leave(double now) {
    pass(now);
    open_.pop_back();
  }
  // Since the last take(), what is open included.
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

// A step's accounts of all ranks, on one of them. `so_far` has what each rank, this one among them, spent since the end
// of the step before until it began the sum that all ranks wait for, and `mine` all that this rank spent. The sum ends
// for all at once: who began it earlier waited longer. After it all do as this one. So each rank's add up to what
// this one's do.
std::vector<Accounts> accounts_of_ranks(const std::vector<Accounts>& so_far, size_t this_rank, const Accounts& mine);

Accounts mean(const std::vector<Accounts>& ranks);
// The rank that waits least for others.
size_t slowest(const std::vector<Accounts>& ranks);

}  // namespace megalith
