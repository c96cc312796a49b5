#include "trainer/communication/communicator.h"

#include <algorithm>
#include <numeric>

#include "kernels/elementwise/elementwise.h"

namespace megalith {

double ring_bytes(Transfer transfer, double payload, int size) {
  const double share = static_cast<double>(size - 1) / size;
  switch (transfer) {
    case Transfer::all_gather:
    case Transfer::all_to_all:
    case Transfer::all_gather_of:
    case Transfer::reduce_scatter_to:
    case Transfer::reduce_scatter: return payload * share;
    case Transfer::all_reduce: return 2 * payload * share;
    case Transfer::recv:
    case Transfer::barrier:
    case Transfer::to_host:
    case Transfer::to_device: return 0;
    default: return size > 1 ? payload : 0;
  }
}

template <class Begin>
Pending Communicator::traced(Stream& s, Transfer transfer, int64_t bytes, int peer, Begin begin) {
  const auto start = [&] {
    return size_ == 1 ? begin() : Pending::traced(s.trace(), channel_, transfer, peer, bytes, begin);
  };
  if (!recorded_) return start();
  const RecordedCall call = call_ = recorded_->begin(transfer, bytes, peer);
  try {
    Pending pending = start();
    call_ = {};
    call.under_way();
    if (!ends_unseen_by_host() || transfer == Transfer::barrier) pending.record(call);
    return pending;
  } catch (...) {
    call_ = {};
    call.failed();
    throw;
  }
}

void Communicator::record_in(FlightRecorder& recorder, uint64_t id) {
  recorded_ = std::make_unique<RecordedGroup>(recorder, id, name_, rank_, size_);
}

std::unique_ptr<Communicator> Communicator::split(std::string name, int channel, int color, int key) {
  std::unique_ptr<Communicator> part;
  {
    const InCall in_call(recorded_.get(), Transfer::split);
    part = do_split(std::move(name), channel, color, key);
  }
  if (recorded_) part->record_in(recorded_->recorder(), recorded_->id_of_part(color));
  return part;
}

void Communicator::connect_all_to_all() {
  const InCall in_call(recorded_.get(), Transfer::connect);
  do_connect_all_to_all();
}

void Communicator::use_symmetric(void* memory, int64_t bytes) {
  const InCall in_call(recorded_.get(), Transfer::connect);
  do_use_symmetric(memory, bytes);
}

void Communicator::check_all_gather(const Tensor& out, const Tensor& in) const {
  CHECK(out.numel() == in.numel() * size_ && out.dtype() == in.dtype(),
        "{}: all_gather of {} {} from {} ranks into {} {}", name_, in.numel(), name_of(in.dtype()), size_, out.numel(),
        name_of(out.dtype()));
}

Pending Communicator::all_gather(Stream& s, Tensor out, Tensor in) {
  check_all_gather(out, in);
  return traced(s, Transfer::all_gather, out.bytes(), -1, [&] { return do_all_gather(s, out, in); });
}

Pending Communicator::all_gather(Stream& s, Tensor out, Tensor in, Pending after) {
  if (!after.under_way()) return all_gather(s, out, in);
  check_all_gather(out, in);
  const auto first = std::make_shared<Pending>(std::move(after));
  return traced(s, Transfer::all_gather, out.bytes(), -1, [&] {
    if (!first->over())
      return Pending([=, this, &s] {
        first->wait();
        do_all_gather(s, out, in).wait();
      });
    const auto second = std::make_shared<Pending>(do_all_gather_behind(s, out, in, first->over()));
    const auto wait = [=] {
      first->wait();
      second->wait();
    };
    return Pending(wait, second->over());
  });
}

Pending Communicator::do_all_gather_behind(Stream& s, Tensor out, Tensor in, CUevent_st* after) {
  device::wait(s.queue().stream, after);
  return do_all_gather(s, out, in);
}

Pending Communicator::reduce_scatter(Stream& s, Tensor out, Tensor in) {
  const bool adds = in.dtype() == DType::f32 || is_16_bit(in.dtype());
  CHECK(in.numel() == out.numel() * size_ && in.dtype() == out.dtype() && adds,
        "{}: reduce_scatter of {} {} into {} {} on each of {} ranks; f32, bf16 and f16 of equal parts are supported",
        name_, in.numel(), name_of(in.dtype()), out.numel(), name_of(out.dtype()), size_);
  return traced(s, Transfer::reduce_scatter, in.bytes(), -1, [&] { return do_reduce_scatter(s, out, in); });
}

void Communicator::check_part(const char* does, Interval of, const Tensor& whole, const Tensor& part) const {
  CHECK(0 <= of.begin && of.begin < of.end && of.end <= size_, "{}: {} members [{}, {}) of {}", name_, does, of.begin,
        of.end, size_);
  CHECK(whole.numel() == part.numel() * of.size() && whole.dtype() == part.dtype(),
        "{}: {} members [{}, {}), {} {} each, and {} {} in all", name_, does, of.begin, of.end, part.numel(),
        name_of(part.dtype()), whole.numel(), name_of(whole.dtype()));
}

Pending Communicator::all_gather_of(Stream& s, Interval of, Tensor out, Tensor in) {
  check_part("all_gather of", of, out, in);
  return traced(s, Transfer::all_gather_of, out.bytes(), static_cast<int>(of.size()),
                [&] { return do_all_gather_of(s, of, out, in); });
}

Pending Communicator::reduce_scatter_to(Stream& s, Interval of, Tensor out, Tensor in) {
  check_part("reduce_scatter to", of, in, out);
  CHECK(in.dtype() == DType::f32 || is_16_bit(in.dtype()), "{}: reduce_scatter of {}; f32, bf16 and f16 are supported",
        name_, name_of(in.dtype()));
  return traced(s, Transfer::reduce_scatter_to, in.bytes(), static_cast<int>(of.size()),
                [&] { return do_reduce_scatter_to(s, of, out, in); });
}

Pending Communicator::all_reduce(Stream& s, Tensor data, Reduce op) {
  CHECK(data.dtype() != DType::i32, "{}: all_reduce of i32; f32, f64, bf16 and f16 are supported", name_);
  return traced(s, Transfer::all_reduce, data.bytes(), -1, [&] { return do_all_reduce(s, data, op); });
}

Pending Communicator::all_to_all(Stream& s, Tensor out, Tensor in) {
  CHECK(in.numel() == out.numel() && in.numel() % size_ == 0 && in.dtype() == out.dtype(),
        "{}: all_to_all of {} {} into {} {} among {} ranks; supported are equal parts of one type", name_, in.numel(),
        name_of(in.dtype()), out.numel(), name_of(out.dtype()), size_);
  return traced(s, Transfer::all_to_all, in.bytes(), -1, [&] { return do_all_to_all(s, out, in); });
}

AllToAllParts AllToAllParts::of(const std::vector<std::vector<int64_t>>& by, int rank) {
  const auto size = std::ssize(by);
  AllToAllParts parts;
  int64_t most = 0;
  for (size_t r = 0; r < by.size(); r++) {
    int64_t sent = 0, received = 0;
    for (size_t other = 0; other < by.size(); other++) {
      if (other == r) continue;
      sent += by[r][other];
      received += by[other][r];
    }
    most = std::max({most, sent, received});
    parts.sent.push_back(by[static_cast<size_t>(rank)][r]);
    parts.received.push_back(by[r][static_cast<size_t>(rank)]);
  }
  parts.payload = size > 1 ? (most * size + size - 2) / (size - 1) : most;
  return parts;
}

Pending Communicator::all_to_all(Stream& s, Tensor out, Tensor in, const AllToAllParts& parts) {
  const auto sum = [](const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  };
  CHECK(std::ssize(parts.sent) == size_ && std::ssize(parts.received) == size_ && in.numel() == sum(parts.sent) &&
            out.numel() == sum(parts.received) && in.dtype() == out.dtype(),
        "{}: all_to_all of {} {} into {} {} among {} ranks, in parts for {} of {} and from {} of {}", name_, in.numel(),
        name_of(in.dtype()), out.numel(), name_of(out.dtype()), size_, parts.sent.size(), sum(parts.sent),
        parts.received.size(), sum(parts.received));
  return traced(s, Transfer::all_to_all, parts.payload * size_of(in.dtype()), -1,
                [&] { return do_all_to_all_of(s, out, in, parts); });
}

Pending Communicator::broadcast(Stream& s, Tensor data, int root) {
  CHECK(0 <= root && root < size_, "{}: broadcast from rank {} of {}", name_, root, size_);
  return traced(s, Transfer::broadcast, data.bytes(), root, [&] { return do_broadcast(s, data, root); });
}

void Communicator::check_peer(int peer, const char* does) const {
  CHECK(0 <= peer && peer < size_ && peer != rank_, "{}: rank {} of {} {} rank {}", name_, rank_, size_, does, peer);
}

Pending Communicator::send(Stream& s, Tensor data, int peer) {
  check_peer(peer, "sends to");
  return traced(s, Transfer::send, data.bytes(), peer, [&] { return do_send(s, data, peer); });
}

Pending Communicator::recv(Stream& s, Tensor data, int peer) {
  check_peer(peer, "receives from");
  return traced(s, Transfer::recv, data.bytes(), peer, [&] { return do_recv(s, data, peer); });
}

void Communicator::barrier(Stream& s) {
  traced(s, Transfer::barrier, 0, -1, [this] { return Pending([this] { do_barrier(); }); }).wait();
}

namespace {

class DryCommunicator : public Communicator {
 public:
  using Communicator::Communicator;
  uint64_t placement() const override { return placement_; }

 protected:
  std::unique_ptr<Communicator> do_split(std::string name, int, int, int) override {
    FAIL("a dry communicator cannot be split (wanted: {})", name);
  }
  Pending do_all_gather(Stream&, Tensor out, Tensor in) override {
    const bool in_place = in.raw() == out.flat(rank() * in.numel(), (rank() + 1) * in.numel()).raw();
    return note(Transfer::all_gather, out, in_place ? out : in);
  }
  Pending do_reduce_scatter(Stream&, Tensor out, Tensor in) override { return note(Transfer::reduce_scatter, out, in); }
  Pending do_all_gather_of(Stream&, Interval, Tensor out, Tensor in) override {
    return note(Transfer::all_gather_of, out, in);
  }
  Pending do_reduce_scatter_to(Stream&, Interval, Tensor out, Tensor in) override {
    return note(Transfer::reduce_scatter_to, out, in);
  }
  Pending do_all_reduce(Stream&, Tensor data, Reduce) override { return note(Transfer::all_reduce, data, data); }
  Pending do_all_to_all(Stream&, Tensor out, Tensor in) override { return note(Transfer::all_to_all, out, in); }
  Pending do_all_to_all_of(Stream&, Tensor, Tensor, const AllToAllParts&) override { return {}; }
  Pending do_broadcast(Stream&, Tensor, int) override { return {}; }
  Pending do_send(Stream&, Tensor, int) override { return {}; }
  Pending do_recv(Stream&, Tensor, int) override { return {}; }
  void do_barrier() override {}

 private:
  Pending note(Transfer transfer, const Tensor& out, const Tensor& in) {
    // One step of FNV-1a on words.
    for (const uint64_t word : {static_cast<uint64_t>(transfer), reinterpret_cast<uint64_t>(out.raw()),
                                static_cast<uint64_t>(out.bytes()), reinterpret_cast<uint64_t>(in.raw())})
      placement_ = (placement_ ^ word) * 0x100000001b3;
    return {};
  }

  uint64_t placement_ = 0;
};

class SelfCommunicator : public DryCommunicator {
 public:
  explicit SelfCommunicator(std::string name) : DryCommunicator(std::move(name), -1, 0, 1) {}

 protected:
  std::unique_ptr<Communicator> do_split(std::string name, int, int, int) override {
    return self_communicator(std::move(name));
  }
  Pending do_all_gather(Stream& s, Tensor out, Tensor in) override { return copy_to(s, out, in); }
  // Copies when it is waited for: an immediate copy would make the stream wait for `after`.
  Pending do_all_gather_behind(Stream& s, Tensor out, Tensor in, CUevent_st* after) override {
    if (out.raw() == in.raw()) return Pending({}, after);
    return Pending([=, this, &s] { copy_to(s, out, in); });
  }
  Pending do_reduce_scatter(Stream& s, Tensor out, Tensor in) override { return copy_to(s, out, in); }
  Pending do_all_gather_of(Stream& s, Interval, Tensor out, Tensor in) override { return copy_to(s, out, in); }
  Pending do_reduce_scatter_to(Stream& s, Interval, Tensor out, Tensor in) override { return copy_to(s, out, in); }
  Pending do_all_to_all(Stream& s, Tensor out, Tensor in) override { return copy_to(s, out, in); }
  Pending do_all_to_all_of(Stream& s, Tensor out, Tensor in, const AllToAllParts&) override {
    return copy_to(s, out, in);
  }

 private:
  Pending copy_to(Stream& s, Tensor out, Tensor in) {
    if (out.raw() == in.raw()) return {};
    count_copy(in.bytes());
    launch(s, Copy{.y = out, .x = in});
    return {};
  }
};

}  // namespace

std::unique_ptr<Communicator> self_communicator(std::string name) {
  return std::make_unique<SelfCommunicator>(std::move(name));
}

std::unique_ptr<Communicator> dry_communicator(std::string name, int channel, int rank, int size) {
  return std::make_unique<DryCommunicator>(std::move(name), channel, rank, size);
}

}  // namespace megalith
