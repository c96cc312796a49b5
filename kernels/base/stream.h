// A Stream is an order of work on one backend. All work of a step goes through launch(), which states its cost once,
// beside the call; planner, profiler, MFU and bench quote that same number.
//
//   cpu: launch() runs the op now, on OpenMP's threads.
//   dry: launch() runs nothing; it only adds the cost to the log.
//   cuda: launch() enqueues the op on the stream's queue and returns.
//
// The log sums per op name, in order of first use. Names are string literals and are compared as pointers. The trace
// keeps every single event, when asked to.
// A stream is not thread-safe and must outlive everything launched on it.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "kernels/base/cost.h"
#include "kernels/base/device.h"
#include "kernels/base/gemm_shape.h"
#include "kernels/base/launch_graph.h"
#include "kernels/base/op_timer.h"
#include "kernels/base/op_watcher.h"
#include "kernels/base/pending.h"
#include "kernels/base/queue_cuda.h"
#include "kernels/base/tensor.h"
#include "kernels/base/trace.h"
#include "kernels/system/check.h"

namespace megalith {

class HostTransfers;  // host_transfers.h: the way between host and GPU

enum class World { cpu, dry, cuda };

// Whether this build has the CUDA ops, set by CMake. Without them their closures are never instantiated.
constexpr bool has_cuda = MEGALITH_HAS_CUDA;

inline double bytes_of(const Tensor& t) { return static_cast<double>(t.bytes()); }

class Stream {
 public:
  // The queue is for the cuda world only; its stream and its workspace stay the caller's and outlive this.
  explicit Stream(World world, cuda::Queue queue = {});
  ~Stream();
  Stream(Stream&&) noexcept;

  World world() const { return world_; }

  // `written`: what the op writes or adds to, for a watcher; empty tensors are allowed, scratch memory does not belong
  // there. cuda(queue): a generic lambda, so that a build without CUDA never instantiates it.
  template <class Cpu, class Cuda>
  void launch(const char* name, Cost cost, std::initializer_list<Tensor> written, Cpu&& cpu, Cuda&& cuda) {
    OpRecord& record = record_of(name);
    record.launches++;
    record.flops += cost.flops;
    record.bytes += cost.bytes;
    trace_->op(name, cost);
    if (notes_) notes_->add(name, cost, {written.begin(), written.size()});
    if (world_ == World::dry) return;
    Timekeeper* const timekeeper = trace_->timekeeper();
    if (timekeeper) timekeeper->begin_op(name, cost);
    run(name, record, cpu, cuda);
    if (timekeeper) timekeeper->end();
    if (watcher_) watcher_->launched(name, {written.begin(), written.size()});
  }
  // Is told of every op from now on (op_watcher.h); null: nobody. It must outlive its time here.
  void watch_ops(OpWatcher* watcher) { watcher_ = watcher; }

  // Makes launches(), which launches ops and does nothing else that it would not do once alone; in the cuda world from
  // the third time on as one launch, with the arguments of the second (launch_graph.h). Not while anyone looks at
  // single ops: a watcher, a timekeeper, time_ops(), a trace of everything. The dry world counts what that would be.
  void replay(LaunchGraph& graph, const std::function<void()>& launches);
  bool ops_are_looked_at() const;

  // The host writes tensors: fill(host) gets tensors of the same shapes in memory of the host (in the cpu world, `to`
  // themselves) and runs now; work launched from here on sees what it wrote. Empty tensors stay empty.
  void upload(const char* name, std::initializer_list<Tensor> to,
              const std::function<void(std::span<const Tensor> host)>& fill);
  // The host reads a tensor as it is after the work launched so far. In the cpu world read(host) runs now, in the cuda
  // world when the host waits for it, in the dry world never.
  using Ticket = int64_t;
  Ticket download(const char* name, Tensor from, std::function<void(Tensor host)> read);
  // The host waits for that download and reads it, and those before it; work launched after it goes on.
  void receive(Ticket download);
  // Copies between the two places of memory (arena.h), beside the ops, on a queue of their own that keeps their order.
  // A copy starts after everything launched so far; what is launched once it was waited for comes after it. The host
  // waits for nothing, so before it looks into host memory itself it must synchronize(). In the cpu world the copy is
  // made when it is waited for.
  Pending to_host(Tensor to, Tensor from) { return copy_beside(Transfer::to_host, to, from); }
  Pending to_device(Tensor to, Tensor from) { return copy_beside(Transfer::to_device, to, from); }
  // The host waits for all work launched so far, and reads what is unread. While it waits in the cuda world, idle() is
  // called over and over, to look for what would make it wait forever.
  void synchronize();
  void on_idle(std::function<void()> idle) { idle_ = std::move(idle); }

  // For what is not an op: copies and communication.
  cuda::Queue queue() const { return queue_; }

  // Work launched so far, summed per op.
  const std::vector<OpRecord>& log() const { return log_; }
  // What of it was launched as graphs.
  const GraphCounts& graphs() const { return graphs_; }
  // And the matrix products among it, by what a library chooses its kernel by. Ops that launch one say so.
  const GemmCounts& gemms() const { return gemms_; }
  void log_gemm(const GemmShape& shape) { gemms_[shape]++; }
  void clear_log() {
    log_.clear();
    graphs_ = {};
    gemms_.clear();
  }
  // In the cuda world launches do not wait. From now on events measure them, for synchronize() to log.
  void time_ops();

  // In order, with the transfers that were given this stream; communicators write into it.
  Trace& trace() { return *trace_; }

  // What the ops of one library keep from call to call, made at the first. Only inside a cpu closure, for one type.
  template <class State>
  State& state() {
    if (!state_) state_ = std::make_shared<State>();
    return *static_cast<State*>(state_.get());
  }

 private:
  template <class Cpu, class Cuda>
  void run(const char* name, OpRecord& record, Cpu& cpu, Cuda& cuda) {
    if constexpr (has_cuda) {
      if (world_ == World::cuda) {
        const device::Range range(name);
        if (timer_) timer_->begin(name);
        cuda(queue_);
        if (timer_) timer_->end();
        return;
      }
    }
    const auto start = std::chrono::steady_clock::now();
    cpu();
    record.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  OpRecord& record_of(const char* name);
  void launch(const LaunchGraph& graph);
  LaunchNotes noted(const std::function<void()>& launches);
  void count_as_graph(const std::function<void()>& launches);
  Pending copy_beside(Transfer direction, Tensor to, Tensor from);
  HostTransfers& transfers();

  World world_;
  cuda::Queue queue_;
  std::vector<OpRecord> log_;
  GemmCounts gemms_;
  std::unique_ptr<Trace> trace_ = std::make_unique<Trace>();  // transfers under way point to it, should the stream move
  std::shared_ptr<void> state_;
  std::unique_ptr<HostTransfers> transfers_;
  std::unique_ptr<OpTimer> timer_;
  OpWatcher* watcher_ = nullptr;
  LaunchNotes* notes_ = nullptr;  // of what is launched now, where it is noted
  GraphCounts graphs_;
  std::function<void()> idle_;
};

}  // namespace megalith
