// A Communicator moves tensors between the ranks of one group. It knows nothing of what it carries.
//
// Calls are collective over the group and must be made in the same order by all its members. They are asynchronous:
// the work starts after everything launched so far on `s`, and the tensors must stay untouched until the returned
// Pending has been waited for. wait() orders the stream behind the transfer; it does not look at device memory.
// A group of one rank copies (or does nothing), so no caller asks for the size first.
//
// The public functions check shapes and record the traffic; each world implements the protected ones. What is recorded
// is the payload: the bytes of the whole tensor that the group gathers, scatters or sums (see ring_bytes for the share
// that crosses a rank's link).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace megalith {

enum class Transfer : uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, send, recv, barrier };
enum class Reduce : uint8_t { sum, max };

const char* name_of(Transfer transfer);

// Bytes that a rank of a group of `size` sends when the payload goes round a ring: all_gather and reduce_scatter
// (size-1)/size of it, all_reduce twice that, a broadcast or a message all of it (recv nothing).
double ring_bytes(Transfer transfer, double payload, int size);

struct TransferRecord {
  Transfer transfer;
  int32_t peer;   // send, recv, broadcast: the other rank or the root; else -1
  int64_t bytes;  // payload
};

// A transfer under way. Waiting twice is allowed; destroying one that was not waited for waits.
class Pending {
 public:
  Pending() = default;
  explicit Pending(std::function<void()> wait) : wait_(std::move(wait)) {}
  Pending(Pending&& other) noexcept : wait_(std::exchange(other.wait_, nullptr)) {}
  Pending& operator=(Pending&& other) {
    wait();
    wait_ = std::exchange(other.wait_, nullptr);
    return *this;
  }
  ~Pending() { wait(); }
  void wait() {
    if (auto w = std::exchange(wait_, nullptr)) w();
  }

 private:
  std::function<void()> wait_;
};

class Communicator {
 public:
  Communicator(std::string name, int rank, int size) : name_(std::move(name)), rank_(rank), size_(size) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // out = the in of rank 0, rank 1, ...; in may be rank's own part of out.
  Pending all_gather(Stream& s, Tensor out, Tensor in);
  // out = the rank-th part of the sum over ranks of in (f32). They must not overlap.
  Pending reduce_scatter(Stream& s, Tensor out, Tensor in);
  // data = the sum or maximum over ranks of data (f32 or f64). The result is the same on every rank.
  Pending all_reduce(Stream& s, Tensor data, Reduce op);
  Pending broadcast(Stream& s, Tensor data, int root);
  Pending send(Stream& s, Tensor data, int peer);
  Pending recv(Stream& s, Tensor data, int peer);
  void barrier();

  // Ranks of equal color form a group, in the order of key.
  virtual std::unique_ptr<Communicator> split(std::string name, int color, int key) = 0;

  // Every transfer since keep_log(true), in order. Off by default: a long run would fill memory.
  void keep_log(bool keep) {
    keep_log_ = keep;
    log_.clear();
  }
  const std::vector<TransferRecord>& log() const { return log_; }

 protected:
  virtual Pending do_all_gather(Stream& s, Tensor out, Tensor in) = 0;
  virtual Pending do_reduce_scatter(Stream& s, Tensor out, Tensor in) = 0;
  virtual Pending do_all_reduce(Stream& s, Tensor data, Reduce op) = 0;
  virtual Pending do_broadcast(Stream& s, Tensor data, int root) = 0;
  virtual Pending do_send(Stream& s, Tensor data, int peer) = 0;
  virtual Pending do_recv(Stream& s, Tensor data, int peer) = 0;
  virtual void do_barrier() = 0;

 private:
  void record(Transfer transfer, int64_t bytes, int peer = -1) {
    if (keep_log_) log_.push_back({transfer, peer, bytes});
  }

  std::string name_;
  int rank_, size_;
  bool keep_log_ = false;
  std::vector<TransferRecord> log_;
};

// A group of one: gathers and scatters are copies, everything else is nothing.
std::unique_ptr<Communicator> self_communicator(std::string name);

// A rank of a group that exists on paper only: transfers are recorded and that is all. `split` is not available; the
// mesh makes the communicators of a dry world by itself.
std::unique_ptr<Communicator> dry_communicator(std::string name, int rank, int size);

}  // namespace megalith
