#include <algorithm>
#include <utility>

#include "kernels/stream/device.h"
#include "trainer/communication/communicator.h"

namespace megalith {

namespace {

// A tensor's copy in host memory; empty for an empty tensor.
class HostCopy {
 public:
  explicit HostCopy(Tensor of) : of_(of) {
    if (!of.empty()) memory_ = device::allocate_pinned(std::max<int64_t>(of.bytes(), 1), "a transfer through the host");
  }
  Tensor tensor() const { return {memory_.get(), of_.dtype(), of_.shape()}; }
  void read(CUstream_st* stream) const {
    device::copy(stream, memory_.get(), of_.raw(), of_.bytes());
    device::synchronize(stream);
  }
  void write(CUstream_st* stream) const {
    device::copy(stream, of_.raw(), memory_.get(), of_.bytes());
    device::synchronize(stream);
  }

 private:
  Tensor of_;
  device::Memory memory_;
};

class StagedCommunicator : public Communicator {
 public:
  explicit StagedCommunicator(std::unique_ptr<Communicator> through)
      : Communicator(through->name(), through->channel(), through->rank(), through->size()),
        through_(std::move(through)) {}

 protected:
  std::unique_ptr<Communicator> do_split(std::string name, int channel, int color, int key) override {
    return staged_communicator(through_->split(std::move(name), channel, color, key));
  }
  Pending do_all_gather(Stream& s, Tensor out, Tensor in) override {
    return staged(s, out, in, [&](Tensor o, Tensor i) { return through_->all_gather(host_, o, i); });
  }
  Pending do_reduce_scatter(Stream& s, Tensor out, Tensor in) override {
    return staged(s, out, in, [&](Tensor o, Tensor i) { return through_->reduce_scatter(host_, o, i); });
  }
  Pending do_all_gather_of(Stream& s, Interval of, Tensor out, Tensor in) override {
    return staged(s, out, in, [&](Tensor o, Tensor i) { return through_->all_gather_of(host_, of, o, i); });
  }
  // Only members that get a part write it.
  Pending do_reduce_scatter_to(Stream& s, Interval of, Tensor out, Tensor in) override {
    if (of.begin <= rank() && rank() < of.end)
      return staged(s, out, in, [&](Tensor o, Tensor i) { return through_->reduce_scatter_to(host_, of, o, i); });
    return staged(s, {}, in,
                  [&](Tensor, Tensor i) { return through_->reduce_scatter_to(host_, of, i.flat(0, out.numel()), i); });
  }
  Pending do_all_reduce(Stream& s, Tensor data, Reduce op) override {
    return staged(s, data, data, [&](Tensor d, Tensor) { return through_->all_reduce(host_, d, op); });
  }
  Pending do_all_to_all(Stream& s, Tensor out, Tensor in) override {
    return staged(s, out, in, [&](Tensor o, Tensor i) { return through_->all_to_all(host_, o, i); });
  }
  Pending do_all_to_all_of(Stream& s, Tensor out, Tensor in, const AllToAllParts& parts) override {
    return staged(s, out, in, [&](Tensor o, Tensor i) { return through_->all_to_all(host_, o, i, parts); });
  }
  Pending do_broadcast(Stream& s, Tensor data, int root) override {
    if (rank() == root)
      return staged(s, {}, data, [&](Tensor, Tensor i) { return through_->broadcast(host_, i, root); });
    return staged(s, data, {}, [&](Tensor o, Tensor) { return through_->broadcast(host_, o, root); });
  }
  Pending do_send(Stream& s, Tensor data, int peer) override {
    return staged(s, {}, data, [&](Tensor, Tensor i) { return through_->send(host_, i, peer); });
  }
  Pending do_recv(Stream& s, Tensor data, int peer) override {
    return staged(s, data, {}, [&](Tensor o, Tensor) { return through_->recv(host_, o, peer); });
  }
  void do_barrier() override { through_->barrier(host_); }

 private:
  // Reads `in` now, and writes `out` when the result is waited for. One may be empty; both may be the same.
  template <class Begin>
  Pending staged(Stream& s, Tensor out, Tensor in, Begin begin) {
    CUstream_st* stream = s.queue().stream;
    const bool same = out.raw() == in.raw() && out.numel() == in.numel();
    const auto to = std::make_shared<HostCopy>(out), from = same ? to : std::make_shared<HostCopy>(in);
    if (!in.empty()) from->read(stream);
    auto under_way = std::make_shared<Pending>(begin(to->tensor(), from->tensor()));
    return Pending([=] {
      under_way->wait();
      if (!out.empty()) to->write(stream);
      (void)from;  // keeps it alive until here
    });
  }

  std::unique_ptr<Communicator> through_;
  Stream host_{World::cpu};
};

}  // namespace

std::unique_ptr<Communicator> staged_communicator(std::unique_ptr<Communicator> through) {
  return std::make_unique<StagedCommunicator>(std::move(through));
}

}  // namespace megalith
