// Communicators that make the most of what communicator.h allows: a transfer delivers only when it is waited for, until
// then what it writes to is NaN, and whoever has written there meanwhile, or over what is being sent, is found. A
// buffer that is used again while a transfer has it gives right numbers over MPI nearly always; here never.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "trainer/communication/communicator.h"

namespace megalith {

class LateCommunicator : public Communicator {
 public:
  explicit LateCommunicator(std::unique_ptr<Communicator> inner)
      : Communicator(inner->name(), inner->channel(), inner->rank(), inner->size()), inner_(std::move(inner)) {}

 protected:
  std::unique_ptr<Communicator> do_split(std::string name, int channel, int color, int key) override {
    return std::make_unique<LateCommunicator>(inner_->split(std::move(name), channel, color, key));
  }
  Pending do_all_gather(Stream& s, Tensor out, Tensor in) override {
    return begin("all_gather", in, out, [&](Tensor from, Tensor to) { return inner_->all_gather(s, to, from); });
  }
  Pending do_reduce_scatter(Stream& s, Tensor out, Tensor in) override {
    return begin("reduce_scatter", in, out,
                 [&](Tensor from, Tensor to) { return inner_->reduce_scatter(s, to, from); });
  }
  Pending do_all_gather_of(Stream& s, Interval of, Tensor out, Tensor in) override {
    return begin("all_gather_of", in, out,
                 [&](Tensor from, Tensor to) { return inner_->all_gather_of(s, of, to, from); });
  }
  // Who gets nothing may use `out` meanwhile.
  Pending do_reduce_scatter_to(Stream& s, Interval of, Tensor out, Tensor in) override {
    const bool gets = of.begin <= rank() && rank() < of.end;
    return begin("reduce_scatter_to", in, gets ? out : Tensor{}, [&](Tensor from, Tensor to) {
      return inner_->reduce_scatter_to(s, of, gets ? to : from.flat(0, out.numel()), from);
    });
  }
  Pending do_all_reduce(Stream& s, Tensor data, Reduce op) override {
    return begin("all_reduce", {}, data, [&](Tensor, Tensor to) { return inner_->all_reduce(s, to, op); });
  }
  Pending do_all_to_all(Stream& s, Tensor out, Tensor in) override {
    return begin("all_to_all", in, out, [&](Tensor from, Tensor to) { return inner_->all_to_all(s, to, from); });
  }
  Pending do_all_to_all_of(Stream& s, Tensor out, Tensor in, const AllToAllParts& parts) override {
    return begin("all_to_all", in, out, [&](Tensor from, Tensor to) { return inner_->all_to_all(s, to, from, parts); });
  }
  Pending do_broadcast(Stream& s, Tensor data, int root) override {
    if (rank() == root)
      return begin("broadcast", data, {}, [&](Tensor from, Tensor) { return inner_->broadcast(s, from, root); });
    return begin("broadcast", {}, data, [&](Tensor, Tensor to) { return inner_->broadcast(s, to, root); });
  }
  Pending do_send(Stream& s, Tensor data, int peer) override {
    return begin("send", data, {}, [&](Tensor from, Tensor) { return inner_->send(s, from, peer); });
  }
  Pending do_recv(Stream& s, Tensor data, int peer) override {
    return begin("recv", {}, data, [&](Tensor, Tensor to) { return inner_->recv(s, to, peer); });
  }
  void do_barrier() override {
    Stream s(World::cpu);
    inner_->barrier(s);
  }

 private:
  using Bytes = std::vector<char>;
  static Bytes bytes_of(const Tensor& t) {
    Bytes bytes(t.empty() ? 0 : static_cast<size_t>(t.bytes()));
    if (!bytes.empty()) std::memcpy(bytes.data(), t.raw(), bytes.size());
    return bytes;
  }
  static void put(const Tensor& t, const Bytes& bytes) {
    if (!bytes.empty()) std::memcpy(t.raw(), bytes.data(), bytes.size());
  }

  // A transfer has what it was given, and copies of its own that it works on.
  struct Flight {
    Tensor in, out;
    Bytes sent, arrived, marked;  // marked: `out` while it is under way, NaN but for an `in` that is a part of it
    Pending transfer;
  };
  template <class Call>
  Pending begin(const char* what, const Tensor& in, const Tensor& out, Call call) {
    auto f = std::make_shared<Flight>(Flight{in, out, bytes_of(in), bytes_of(out), {}, {}});
    put(out, Bytes(f->arrived.size(), '\xff'));
    put(in, f->sent);
    f->marked = bytes_of(out);
    const auto copy_of = [](const Tensor& t, Bytes& bytes) {
      return t.empty() ? Tensor() : Tensor(bytes.data(), t.dtype(), {t.numel()});
    };
    f->transfer = call(copy_of(in, f->sent), copy_of(out, f->arrived));
    return Pending([this, what, f] {
      f->transfer.wait();
      EXPECT_TRUE(bytes_of(f->in) == f->sent) << name() << ": what a " << what << " sends was changed under way";
      EXPECT_TRUE(bytes_of(f->out) == f->marked) << name() << ": what a " << what << " fills was written under way";
      put(f->out, f->arrived);
    });
  }

  std::unique_ptr<Communicator> inner_;
};

}  // namespace megalith
