// The ranks of a run tell one another with every step what each asks for and what it has measured. That travels in
// a tensor of its own, by an all-reduce that is launched behind that of the gradient norm and awaited after the update,
// so that the update does not wait for it; the host reads it with the step's other scalars. No other class knows the
// tensor's layout.
#pragma once

#include <functional>
#include <vector>

#include "trainer/communication/communicator.h"
#include "trainer/parallel/runtime.h"
#include "trainer/step/account.h"

namespace megalith {

// The flags are what a rank asks for. All ranks learn of it together.
struct ControlFlags {
  bool stop = false;        // the run is to end
  bool save = false;        // a checkpoint is due
  int64_t save_phases = 0;  // of asynchronous saves, that this rank has ended so far (checkpointing/saving.h)
};

// A rank's host has measured these when it launches the exchange.
struct HostStats {
  Accounts so_far{};                             // of this step's time; in the cuda world nothing
  double resident = 0, device = 0, on_host = 0;  // bytes of memory taken
};

struct RankRecord {
  ControlFlags flags{};
  HostStats stats{};
};

// The records of all ranks, the same on every rank.
struct RankRecords {
  int64_t stop = 0, save = 0;      // ranks that ask for it
  int64_t save_phases = 0;         // ended by all ranks together
  std::vector<HostStats> stats{};  // by rank
};

class RankStats {
 public:
  using Source = std::function<RankRecord()>;

  RankStats(int rank, int ranks, Memory& memory);

  // Writes what `source` says now, on this rank; zeros where it is empty.
  void write(Stream& s, const Source& source);
  // Collective: launches the sum of what was written.
  Pending exchange(Stream& s, Communicator& world);
  // Once the sum was waited for: it is in `out` when the stream receives what is returned.
  Stream::Ticket read(Stream& s, RankRecords* out) const;

 private:
  int rank_;
  Tensor record_;  // f64: the flags, summed over the ranks; the stats of each rank, which are 0 on the others
};

}  // namespace megalith
