#include "trainer/communication/staged.h"

#include <algorithm>
#include <utility>

#include "kernels/base/device.h"

namespace megalith {

namespace {

// A tensor's twin in memory of the host.
class Twin {
 public:
  explicit Twin(Tensor of)
      : of_(of), memory_(device::allocate_pinned(std::max<int64_t>(of.bytes(), 1), "a transfer through the host")) {}
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

  std::unique_ptr<Communicator> split(std::string name, int channel, int color, int key) override {
    return staged_communicator(through_->split(std::move(name), channel, color, key));
  }

 protected:
  Pending do_all_gather(Stream& s, Tensor out, Tensor in) override {
    return both(s, out, in, [&](Tensor o, Tensor i) { return through_->all_gather(host_, o, i); });
  }
  Pending do_reduce_scatter(Stream& s, Tensor out, Tensor in) override {
    return both(s, out, in, [&](Tensor o, Tensor i) { return through_->reduce_scatter(host_, o, i); });
  }
  Pending do_all_reduce(Stream& s, Tensor data, Reduce op) override {
    return one(s, data, true, true, [&](Tensor d) { return through_->all_reduce(host_, d, op); });
  }
  Pending do_broadcast(Stream& s, Tensor data, int root) override {
    return one(s, data, rank() == root, rank() != root, [&](Tensor d) { return through_->broadcast(host_, d, root); });
  }
  Pending do_send(Stream& s, Tensor data, int peer) override {
    return one(s, data, true, false, [&](Tensor d) { return through_->send(host_, d, peer); });
  }
  Pending do_recv(Stream& s, Tensor data, int peer) override {
    return one(s, data, false, true, [&](Tensor d) { return through_->recv(host_, d, peer); });
  }
  void do_barrier() override { through_->barrier(host_); }

 private:
  template <class Begin>
  Pending both(Stream& s, Tensor out, Tensor in, Begin begin) {
    CUstream_st* stream = s.queue().stream;
    auto to = std::make_shared<Twin>(out), from = std::make_shared<Twin>(in);
    from->read(stream);
    auto under_way = std::make_shared<Pending>(begin(to->tensor(), from->tensor()));
    return Pending([=] {
      under_way->wait();
      to->write(stream);
      (void)from;  // until here
    });
  }
  template <class Begin>
  Pending one(Stream& s, Tensor data, bool reads, bool writes, Begin begin) {
    CUstream_st* stream = s.queue().stream;
    auto twin = std::make_shared<Twin>(data);
    if (reads) twin->read(stream);
    auto under_way = std::make_shared<Pending>(begin(twin->tensor()));
    return Pending([=] {
      under_way->wait();
      if (writes) twin->write(stream);
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
