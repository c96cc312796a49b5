// A Stream is an order of work on one backend. All work of a step goes through launch(), which states its cost once;
// planner, profiler, MFU and bench read that number.
//
//   cpu: launch() runs the op now, on OpenMP's threads.
//   dry: launch() runs nothing and adds the cost to the log.
//   cuda: launch() enqueues the op on the stream's queue and returns.
//
// The log sums per op name, in order of first use. Names are string literals and are compared as pointers. The trace
// keeps every single event if asked to. A stream is not thread-safe and must outlive everything launched on it.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "kernels/stream/cost.h"
#include "kernels/stream/device.h"
#include "kernels/stream/gemm_shape.h"
#include "kernels/stream/launch_graph.h"
#include "kernels/stream/op_timer.h"
#include "kernels/stream/op_watcher.h"
#include "kernels/stream/pending.h"
#include "kernels/stream/queue_cpu.h"
#include "kernels/stream/queue_cuda.h"
#include "kernels/stream/trace.h"
#include "kernels/system/check.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

class HostTransfers;  // host_transfers.h: copies between host and GPU

enum class World { cpu, dry, cuda };

// True if this build has the CUDA ops. Without them nothing calls them.
constexpr bool has_cuda = MEGALITH_HAS_CUDA;

// As a double, the type of costs.
inline double numel_of(const Tensor& t) { return static_cast<double>(t.numel()); }
inline double bytes_of(const Tensor& t) { return static_cast<double>(t.bytes()); }
inline double bytes_of(std::initializer_list<Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += bytes_of(t);
  return bytes;
}

class Stream {
 public:
  // The queue is for the cuda world only; its stream and workspace belong to the caller and must outlive this.
  explicit Stream(World world, cuda::Queue queue = {});
  ~Stream();
  Stream(Stream&&) noexcept;

  World world() const { return world_; }

  // Op: a struct of the op's arguments, and its `name`; run(cpu::Queue&, const Op&) and, in a build with CUDA,
  // run(cuda::Queue, const Op&) compute it. `written`: the tensors that it writes or adds to, for a watcher; empty ones
  // are allowed, scratch memory is not listed.
  template <class Op>
  void launch(const Op& op, Cost cost, std::initializer_list<Tensor> written) {
    launch(Op::name, cost, written, [&] {
      if constexpr (has_cuda)
        if (world_ == World::cuda) return run(queue_, op);
      run(cpu_queue_, op);
    });
  }
  // During its lifetime, the stream's ops belong to this section of a step.
  class Section {
   public:
    Section(Stream& s, Cost::Section section) : s_(s) { s_.section_ = section; }
    ~Section() { s_.section_ = Cost::Section::none; }
    Section(const Section&) = delete;

   private:
    Stream& s_;
  };

  // Sets the watcher notified of every op (op_watcher.h); nullptr removes it. Not owned.
  void watch_ops(OpWatcher* watcher) { watcher_ = watcher; }

  // Calls launches(), which may only launch ops. In the cuda world, from the third time on, they are launched as one
  // graph with the arguments of the second time (launch_graph.h), unless single ops are observed: by a watcher, a
  // timekeeper, time_ops() or a full trace. The dry world counts the graphs that would be launched.
  void replay(LaunchGraph& graph, const std::function<void()>& launches);
  bool ops_are_looked_at() const;

  // Lets the host write tensors: calls fill(host) now with host tensors of the same shapes (in the cpu world `to`
  // themselves). Work launched after this call sees the result. Empty tensors stay empty.
  void upload(const char* name, std::initializer_list<Tensor> to,
              const std::function<void(std::span<const Tensor> host)>& fill);
  // Lets the host read a tensor as it is after the work launched so far. read(host) is called now in the cpu world,
  // when the host waits for it in the cuda world, and never in the dry world.
  using Ticket = int64_t;
  Ticket download(const char* name, Tensor from, std::function<void(Tensor host)> read);
  // Waits on the host for that download, and reads it and all earlier ones; later work continues.
  void receive(Ticket download);
  // Copies between device and host memory (arena.h) on a queue of their own, overlapped with ops. A copy starts after
  // all work launched so far; work launched after its wait() comes after it. The host does not wait: before it reads
  // host memory itself it must synchronize(). In the cpu world the copy is made in wait().
  Pending to_host(Tensor to, Tensor from) { return copy_async(Transfer::to_host, to, from); }
  Pending to_device(Tensor to, Tensor from) { return copy_async(Transfer::to_device, to, from); }
  // Waits on the host for all work launched so far, and reads pending downloads. In the cuda world it calls idle()
  // repeatedly while it waits, to detect a hang.
  void synchronize();
  void on_idle(std::function<void()> idle) { idle_ = std::move(idle); }

  // For copies and communication, which are not ops.
  cuda::Queue queue() const { return queue_; }

  const std::vector<OpRecord>& log() const { return log_; }
  const GraphCounts& graphs() const { return graphs_; }
  // The matrix products launched, by shape. Ops that launch one report it.
  const GemmCounts& gemms() const { return gemms_; }
  void log_gemm(const GemmShape& shape) { gemms_[shape]++; }
  void clear_log() {
    log_.clear();
    graphs_ = {};
    gemms_.clear();
  }
  // Measures launches with events after this call, in the cuda world; synchronize() logs the times.
  void time_ops();

  // The ops in order, and the transfers of this stream, which communicators write.
  Trace& trace() { return *trace_; }

 private:
  template <class Work>
  void launch(const char* name, Cost cost, std::initializer_list<Tensor> written, Work&& work) {
    cost.section = section_;
    OpRecord& record = record_of(name);
    record.launches++;
    record.flops += cost.flops;
    record.bytes += cost.bytes;
    trace_->op(name, cost);
    if (notes_) notes_->add(name, cost, {written.begin(), written.size()});
    if (world_ == World::dry) return;
    Timekeeper* const timekeeper = trace_->timekeeper();
    if (timekeeper) timekeeper->begin_op(name, cost);
    compute(name, record, work);
    if (timekeeper) timekeeper->end();
    if (watcher_) watcher_->launched(name, {written.begin(), written.size()});
  }
  template <class Work>
  void compute(const char* name, OpRecord& record, Work& work) {
    if constexpr (has_cuda) {
      if (world_ == World::cuda) {
        const device::Range range(name);
        if (timer_) timer_->begin(name);
        work();
        if (timer_) timer_->end();
        return;
      }
    }
    const auto start = std::chrono::steady_clock::now();
    work();
    record.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  OpRecord& record_of(const char* name);
  void launch(const LaunchGraph& graph);
  LaunchNotes noted(const std::function<void()>& launches);
  void count_as_graph(const std::function<void()>& launches);
  Pending copy_async(Transfer direction, Tensor to, Tensor from);
  HostTransfers& transfers();

  World world_;
  cuda::Queue queue_;
  cpu::Queue cpu_queue_;
  std::vector<OpRecord> log_;
  GemmCounts gemms_;
  std::unique_ptr<Trace> trace_ =
      std::make_unique<Trace>();  // a pointer, since transfers in flight point to it when the stream moves
  std::unique_ptr<HostTransfers> transfers_;
  std::unique_ptr<OpTimer> timer_;
  OpWatcher* watcher_ = nullptr;
  LaunchNotes* notes_ = nullptr;  // set while launches are noted
  Cost::Section section_ = Cost::Section::none;
  GraphCounts graphs_;
  std::function<void()> idle_;
};

}  // namespace megalith
