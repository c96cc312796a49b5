// A Communicator moves tensors between the ranks of one group, whatever they contain.
//
// Calls are collective over the group, and all members make them in the same order. They are asynchronous: a transfer
// starts after all work launched so far on `s`, and is complete after a wait for the returned Pending. A group of one
// rank copies (or does nothing), so callers need not ask for the size first.
//
// The public functions check shapes and write the stream's trace; each world implements the protected ones. The trace
// holds the payload, the bytes of the whole tensor that the group gathers, scatters, sums or exchanges (ring_bytes: the
// share that crosses a rank's link). A group of one traces nothing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/stream/flight_recorder.h"
#include "kernels/stream/pending.h"
#include "kernels/stream/stream.h"
#include "kernels/stream/trace.h"
#include "kernels/tensor/interval.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

enum class Reduce : uint8_t { sum, max };

// Returns the bytes that a rank of a group of `size` sends when the payload goes round a ring: (size-1)/size of it for
// all_gather, reduce_scatter and (directly to each member) all_to_all, twice that for all_reduce, all of it for a
// broadcast or a message, nothing for recv. For all_gather and reduce_scatter of some members it is the mean over the
// ranks: most pass on the whole, and those before a member all except that member's part.
double ring_bytes(Transfer transfer, double payload, int size);

// The parts of an exchange with unequal parts, in elements. Members of a group make them from the same table.
struct AllToAllParts {
  std::vector<int64_t> sent{}, received{};  // to and from each member
  // The size of the equivalent exchange with equal parts: each member sends as much to others as the busiest one here
  // sends or receives.
  int64_t payload = 0;

  // by[from][to] elements.
  static AllToAllParts of(const std::vector<std::vector<int64_t>>& by, int rank);
  AllToAllParts back() const { return {received, sent, payload}; }
};

class Communicator {
 public:
  // `channel` gives the group's purpose to the trace and its readers (mesh.h); -1: none.
  Communicator(std::string name, int channel, int rank, int size)
      : name_(std::move(name)), channel_(channel), rank_(rank), size_(size) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  int channel() const { return channel_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // out = the `in` of rank 0, rank 1, ...; in may be this rank's own part of out.
  Pending all_gather(Stream& s, Tensor out, Tensor in);
  // Gathers after the transfer `after`, if any, which writes `in`. GPU streams keep this order by themselves. If the
  // host carries the tensors, the gather begins when it is waited for. Waiting for the result waits for both.
  Pending all_gather(Stream& s, Tensor out, Tensor in, Pending after);
  // out = the rank-th part of the sum over ranks of in (f32, bf16 or f16), which must not overlap. Here and below,
  // 16-bit types are added in f32 and rounded to nearest: by MPI once, in the order of ranks; by NCCL after each
  // addition.
  Pending reduce_scatter(Stream& s, Tensor out, Tensor in);
  // Gather and scatter only the parts of some members, those with the ranks `of`. Gather: out = their ins, in order, on
  // every member. Scatter: each of them gets its part of the sum of in, which has only their parts. Other members'
  // `in`, or `out`, is unchanged. NCCL may add in another order than reduce_scatter of the whole; MPI does not.
  Pending all_gather_of(Stream& s, Interval of, Tensor out, Tensor in);
  Pending reduce_scatter_to(Stream& s, Interval of, Tensor out, Tensor in);
  // data = the sum or maximum over ranks of data (f32, f64, bf16 or f16). The result is the same on every rank.
  Pending all_reduce(Stream& s, Tensor data, Reduce op);
  // Part r of out = part `rank` of the in of rank r, of `size` equal parts. They must not overlap.
  Pending all_to_all(Stream& s, Tensor out, Tensor in);
  // As above with unequal parts, one after the other in the order of ranks; some may be empty. The trace has
  // parts.payload.
  Pending all_to_all(Stream& s, Tensor out, Tensor in, const AllToAllParts& parts);
  Pending broadcast(Stream& s, Tensor data, int root);
  Pending send(Stream& s, Tensor data, int peer);
  Pending recv(Stream& s, Tensor data, int peer);
  void barrier(Stream& s);

  // From now on transfers of this group may overlap with work on the stream. On a GPU those of the tensor-parallel
  // group run in its order until then, which is cheaper if each is awaited at once.
  virtual void run_overlapped() {}

  // Collective. Makes the connections for all_to_all, which the first one would otherwise allocate.
  void connect_all_to_all();

  // Collective. Declares that transfers use this memory of the GPU, which must outlive the group: each member has as
  // many bytes of it, and in every transfer the tensors in it begin at the same offset on all members. NCCL then need
  // not copy them (nccl.h); other libraries ignore it.
  void use_symmetric(void* memory, int64_t bytes);

  // Returns a hash of the addresses of all tensors transferred so far, except messages and exchanges with unequal
  // parts; 0: no such transfer. Members of a group with equal hashes had them at the same addresses, except for a
  // rank's own part of an in-place gather. Dry runs only.
  virtual uint64_t placement() const { return 0; }

  // Collective. Makes a group of the ranks of equal color, in the order of key.
  std::unique_ptr<Communicator> split(std::string name, int channel, int color, int key);

  // Records the calls of this group, to which all members give the id `id`, and of groups split off it later.
  void record_in(FlightRecorder& recorder, uint64_t id);

  // Returns how many bytes a group of one has copied to outputs with their own memory.
  int64_t copied() const { return copied_; }

 protected:
  virtual Pending do_all_gather(Stream& s, Tensor out, Tensor in) = 0;
  // Gathers after an event of another GPU stream; by default the stream itself waits for it. Callers wait for the
  // event's transfer before they wait for the result.
  virtual Pending do_all_gather_behind(Stream& s, Tensor out, Tensor in, CUevent_st* after);
  virtual Pending do_reduce_scatter(Stream& s, Tensor out, Tensor in) = 0;
  virtual Pending do_all_gather_of(Stream& s, Interval of, Tensor out, Tensor in) = 0;
  virtual Pending do_reduce_scatter_to(Stream& s, Interval of, Tensor out, Tensor in) = 0;
  virtual Pending do_all_reduce(Stream& s, Tensor data, Reduce op) = 0;
  virtual Pending do_all_to_all(Stream& s, Tensor out, Tensor in) = 0;
  virtual Pending do_all_to_all_of(Stream& s, Tensor out, Tensor in, const AllToAllParts& parts) = 0;
  virtual Pending do_broadcast(Stream& s, Tensor data, int root) = 0;
  virtual Pending do_send(Stream& s, Tensor data, int peer) = 0;
  virtual Pending do_recv(Stream& s, Tensor data, int peer) = 0;
  virtual void do_barrier() = 0;
  virtual void do_connect_all_to_all() {}
  virtual void do_use_symmetric(void*, int64_t) {}
  virtual std::unique_ptr<Communicator> do_split(std::string name, int channel, int color, int key) = 0;

  // Returns whether the host waits only in barriers. If so, the code that sees a transfer end records it by
  // recorded_call(), the call of the transfer being started.
  virtual bool ends_unseen_by_host() const { return false; }
  const RecordedCall& recorded_call() const { return call_; }

  void count_copy(int64_t bytes) { copied_ += bytes; }

 private:
  void check_all_gather(const Tensor& out, const Tensor& in) const;
  void check_part(const char* does, Interval of, const Tensor& whole, const Tensor& part) const;
  void check_peer(int peer, const char* does) const;
  template <class Begin>
  Pending traced(Stream& s, Transfer transfer, int64_t bytes, int peer, Begin begin);

  std::string name_;
  int channel_, rank_, size_;
  int64_t copied_ = 0;
  std::unique_ptr<RecordedGroup> recorded_;
  RecordedCall call_;
};

// Makes a group of one: gathers, scatters and exchanges copy; other calls do nothing.
std::unique_ptr<Communicator> self_communicator(std::string name);

// Makes a rank of a group for a dry run: transfers are traced and have no effect. It cannot be split; Mesh::dry makes
// each group.
std::unique_ptr<Communicator> dry_communicator(std::string name, int channel, int rank, int size);

// Sends tensors in GPU memory through the host, over a communicator for host tensors. The host waits for every
// transfer. For tests with several ranks on one GPU.
std::unique_ptr<Communicator> staged_communicator(std::unique_ptr<Communicator> through);

}  // namespace megalith
