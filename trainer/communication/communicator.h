// A Communicator moves tensors between the ranks of one group. It knows nothing of what it carries.
//
// Calls are collective over the group and must be made in the same order by all its members. They are asynchronous:
// the work starts after everything launched so far on `s`, and is over when the returned Pending has been waited for.
// A group of one rank copies (or does nothing), so no caller asks for the size first.
//
// The public functions check shapes and write the stream's trace; each world implements the protected ones. What is
// traced is the payload: the bytes of the whole tensor that the group gathers, scatters, sums or exchanges (see
// ring_bytes for the share that crosses a rank's link). A group of one traces nothing.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kernels/base/call_ring.h"
#include "kernels/base/pending.h"
#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"
#include "kernels/base/trace.h"

namespace megalith {

enum class Reduce : uint8_t { sum, max };

// Bytes that a rank of a group of `size` sends when the payload goes round a ring: all_gather and reduce_scatter
// (size-1)/size of it, all_reduce twice that, a broadcast or a message all of it (recv nothing). An all_to_all goes to
// each member by itself, and is as much as a reduce_scatter.
double ring_bytes(Transfer transfer, double payload, int size);

class Communicator {
 public:
  // `channel` is the number by which the trace and its readers know the group's purpose (mesh.h); none: -1.
  Communicator(std::string name, int channel, int rank, int size)
      : name_(std::move(name)), channel_(channel), rank_(rank), size_(size) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  int channel() const { return channel_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // out = the in of rank 0, rank 1, ...; in may be rank's own part of out.
  Pending all_gather(Stream& s, Tensor out, Tensor in);
  // The same after another transfer, if there is one, which writes `in`: GPU streams keep this order by themselves;
  // where the host carries the tensors, this one begins when it is waited for. Waits for both.
  Pending all_gather(Stream& s, Tensor out, Tensor in, Pending after);
  // out = the rank-th part of the sum over ranks of in (f32, bf16 or f16). They must not overlap. Here and below, 16
  // bits are added in f32 and rounded to nearest: by MPI the sum, by NCCL each partial sum. MPI adds in the order of ranks.
  Pending reduce_scatter(Stream& s, Tensor out, Tensor in);
  // data = the sum or maximum over ranks of data (f32, f64, bf16 or f16). The result is the same on every rank.
  Pending all_reduce(Stream& s, Tensor data, Reduce op);
  // Piece r of out = piece rank of the in of rank r, of `size` equal pieces. They must not overlap.
  Pending all_to_all(Stream& s, Tensor out, Tensor in);
  Pending broadcast(Stream& s, Tensor data, int root);
  Pending send(Stream& s, Tensor data, int peer);
  Pending recv(Stream& s, Tensor data, int peer);
  void barrier(Stream& s);

  // Collective. Connects what all_to_all needs, whose memory would otherwise be taken by the first one.
  void connect_all_to_all();

  // Collective. Ranks of equal color form a group, in the order of key.
  std::unique_ptr<Communicator> split(std::string name, int channel, int color, int key);

  // From here on the ring is told of the calls of this group, which all members name by `id`, and of the groups that
  // are split off it.
  void keep_calls(CallRing& ring, uint64_t id);

  // Bytes that this rank copies although no transfer moves them: a group of one, whose output has memory of its own.
  int64_t copied() const { return copied_; }

 protected:
  virtual Pending do_all_gather(Stream& s, Tensor out, Tensor in) = 0;
  // On a GPU stream, after an event of another stream: by default the stream itself waits for the event. The Pending
  // is waited for after what the event is of.
  virtual Pending do_all_gather_behind(Stream& s, Tensor out, Tensor in, CUevent_st* after);
  virtual Pending do_reduce_scatter(Stream& s, Tensor out, Tensor in) = 0;
  virtual Pending do_all_reduce(Stream& s, Tensor data, Reduce op) = 0;
  virtual Pending do_all_to_all(Stream& s, Tensor out, Tensor in) = 0;
  virtual Pending do_broadcast(Stream& s, Tensor data, int root) = 0;
  virtual Pending do_send(Stream& s, Tensor data, int peer) = 0;
  virtual Pending do_recv(Stream& s, Tensor data, int peer) = 0;
  virtual void do_barrier() = 0;
  virtual void do_connect_all_to_all() {}
  virtual std::unique_ptr<Communicator> do_split(std::string name, int channel, int color, int key) = 0;

  // Whether the host waits for none of its transfers, but in a barrier: the ring is told of their ends by whoever sees
  // them, with ticket(), that of the transfer being begun.
  virtual bool ends_unseen_by_host() const { return false; }
  int64_t ticket() const { return ticket_; }  // 0: none
  CallRing* ring() const { return calls_ ? &calls_->ring() : nullptr; }

  void count_copy(int64_t bytes) { copied_ += bytes; }

 private:
  void check_all_gather(const Tensor& out, const Tensor& in) const;
  template <class Begin>
  Pending traced(Stream& s, Transfer transfer, int64_t bytes, int peer, Begin begin);

  std::string name_;
  int channel_, rank_, size_;
  int64_t copied_ = 0;
  std::unique_ptr<CallGroup> calls_;
  int64_t ticket_ = 0;
};

// A group of one: gathers, scatters and exchanges are copies, everything else is nothing.
std::unique_ptr<Communicator> self_communicator(std::string name);

// A rank of a group that exists on paper only: transfers are traced and that is all. `split` is not available; the
// mesh makes the communicators of a dry world by itself.
std::unique_ptr<Communicator> dry_communicator(std::string name, int channel, int rank, int size);

}  // namespace megalith
