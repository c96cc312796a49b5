#include "trainer/runtime/communicator.h"

#include <cstring>

namespace megalith {

const char* name_of(Transfer transfer) {
  switch (transfer) {
    case Transfer::all_gather: return "all_gather";
    case Transfer::reduce_scatter: return "reduce_scatter";
    case Transfer::all_reduce: return "all_reduce";
    case Transfer::broadcast: return "broadcast";
    case Transfer::send: return "send";
    case Transfer::recv: return "recv";
    default: return "barrier";
  }
}

double ring_bytes(Transfer transfer, double payload, int size) {
  const double share = static_cast<double>(size - 1) / size;
  switch (transfer) {
    case Transfer::all_gather:
    case Transfer::reduce_scatter: return payload * share;
    case Transfer::all_reduce: return 2 * payload * share;
    case Transfer::recv:
    case Transfer::barrier: return 0;
    default: return size > 1 ? payload : 0;
  }
}

Pending Communicator::all_gather(Stream& s, Tensor out, Tensor in) {
  CHECK(out.numel() == in.numel() * size_ && out.dtype() == in.dtype(),
        "{}: all_gather of {} {} from {} ranks into {} {}", name_, in.numel(), name_of(in.dtype()), size_, out.numel(),
        name_of(out.dtype()));
  record(Transfer::all_gather, out.bytes());
  return do_all_gather(s, out, in);
}

Pending Communicator::reduce_scatter(Stream& s, Tensor out, Tensor in) {
  CHECK(in.numel() == out.numel() * size_ && in.dtype() == DType::f32 && out.dtype() == DType::f32,
        "{}: reduce_scatter of {} {} into {} {} on each of {} ranks; f32 of equal parts is supported", name_,
        in.numel(), name_of(in.dtype()), out.numel(), name_of(out.dtype()), size_);
  record(Transfer::reduce_scatter, in.bytes());
  return do_reduce_scatter(s, out, in);
}

Pending Communicator::all_reduce(Stream& s, Tensor data, Reduce op) {
  CHECK(data.dtype() == DType::f32 || data.dtype() == DType::f64, "{}: all_reduce of {}; f32 and f64 are supported",
        name_, name_of(data.dtype()));
  record(Transfer::all_reduce, data.bytes());
  return do_all_reduce(s, data, op);
}

Pending Communicator::broadcast(Stream& s, Tensor data, int root) {
  CHECK(0 <= root && root < size_, "{}: broadcast from rank {} of {}", name_, root, size_);
  record(Transfer::broadcast, data.bytes(), root);
  return do_broadcast(s, data, root);
}

Pending Communicator::send(Stream& s, Tensor data, int peer) {
  CHECK(0 <= peer && peer < size_ && peer != rank_, "{}: rank {} of {} sends to rank {}", name_, rank_, size_, peer);
  record(Transfer::send, data.bytes(), peer);
  return do_send(s, data, peer);
}

Pending Communicator::recv(Stream& s, Tensor data, int peer) {
  CHECK(0 <= peer && peer < size_ && peer != rank_, "{}: rank {} of {} receives from rank {}", name_, rank_, size_,
        peer);
  record(Transfer::recv, data.bytes(), peer);
  return do_recv(s, data, peer);
}

void Communicator::barrier() {
  record(Transfer::barrier, 0);
  do_barrier();
}

namespace {

class SelfCommunicator : public Communicator {
 public:
  explicit SelfCommunicator(std::string name) : Communicator(std::move(name), 0, 1) {}
  std::unique_ptr<Communicator> split(std::string name, int, int) override {
    return self_communicator(std::move(name));
  }

 protected:
  Pending do_all_gather(Stream& s, Tensor out, Tensor in) override { return copy_to(s, out, in); }
  Pending do_reduce_scatter(Stream& s, Tensor out, Tensor in) override { return copy_to(s, out, in); }
  Pending do_all_reduce(Stream&, Tensor, Reduce) override { return {}; }
  Pending do_broadcast(Stream&, Tensor, int) override { return {}; }
  Pending do_send(Stream&, Tensor, int) override { return {}; }
  Pending do_recv(Stream&, Tensor, int) override { return {}; }
  void do_barrier() override {}

 private:
  static Pending copy_to(Stream& s, Tensor out, Tensor in) {
    if (out.raw() != in.raw())
      s.launch("copy", {.bytes = 2.0 * static_cast<double>(in.bytes())},
               [=] { std::memcpy(out.raw(), in.raw(), static_cast<size_t>(in.bytes())); });
    return {};
  }
};

class DryCommunicator : public Communicator {
 public:
  using Communicator::Communicator;
  std::unique_ptr<Communicator> split(std::string name, int, int) override {
    FAIL("a dry communicator cannot be split (wanted: {})", name);
  }

 protected:
  Pending do_all_gather(Stream&, Tensor, Tensor) override { return {}; }
  Pending do_reduce_scatter(Stream&, Tensor, Tensor) override { return {}; }
  Pending do_all_reduce(Stream&, Tensor, Reduce) override { return {}; }
  Pending do_broadcast(Stream&, Tensor, int) override { return {}; }
  Pending do_send(Stream&, Tensor, int) override { return {}; }
  Pending do_recv(Stream&, Tensor, int) override { return {}; }
  void do_barrier() override {}
};

}  // namespace

std::unique_ptr<Communicator> self_communicator(std::string name) {
  return std::make_unique<SelfCommunicator>(std::move(name));
}

std::unique_ptr<Communicator> dry_communicator(std::string name, int rank, int size) {
  return std::make_unique<DryCommunicator>(std::move(name), rank, size);
}

}  // namespace megalith
