// With every step the ranks of a run exchange what each requests and has measured. The numbers are in a tensor of their
// own. Its all-reduce is launched after that of the gradient norm and awaited after the update, so that the update does
// not wait for it; the host reads it with the step's other scalars. Only this class knows the tensor's layout.
#pragma once

#include <functional>
#include <vector>

#include "trainer/communication/communicator.h"
#include "trainer/parallel/runtime.h"
#include "trainer/step/account.h"

namespace megalith {

// What a rank requests. All ranks learn of it together.
struct ControlFlags {
  bool stop = false;        // the run must end
  bool save = false;        // a checkpoint is due
  int64_t save_phases = 0;  // of asynchronous saves, completed by this rank so far (checkpointing/saving.h)
};

// What a rank's host has measured when it launches the exchange.
struct HostStats {
  Accounts so_far{};                             // of this step's time; zeros in the cuda world
  double resident = 0, device = 0, on_host = 0;  // bytes of memory in use
};

struct RankRecord {
  ControlFlags flags{};
  HostStats stats{};
};

// The records of all ranks, the same on every rank.
struct RankRecords {
  int64_t stop = 0, save = 0;      // ranks that request it
  int64_t save_phases = 0;         // completed, summed over the ranks
  std::vector<HostStats> stats{};  // by rank
};

class RankStats {
 public:
  using Source = std::function<RankRecord()>;

  RankStats(int rank, int ranks, Memory& memory);

  // Writes this rank's `source` as of now; zeros if it is empty.
  void write(Stream& s, const Source& source);
  // Collective: launches the sum of these numbers.
  Pending exchange(Stream& s, Communicator& world);
  // Call this after a wait for the sum. The result is in `out` when the stream receives the returned ticket.
  Stream::Ticket read(Stream& s, RankRecords* out) const;

 private:
  int rank_;
  Tensor record_;  // f64: the flags, summed over the ranks; the stats of each rank, which are 0 on the others
};

}  // namespace megalith
