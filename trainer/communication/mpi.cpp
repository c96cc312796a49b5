#include "trainer/communication/mpi.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "trainer/communication/ordered_sum.h"
#include "trainer/session/mpi_check.h"

namespace megalith {

namespace {

MPI_Datatype datatype(DType dtype) {
  switch (dtype) {
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::i32: return MPI_INT32_T;
    case DType::bf16:
    case DType::f16: return MPI_UINT16_T;  // types that MPI does not know are transferred as bits
    default: return MPI_BYTE;
  }
}

// Calls `then` once the transfer has ended.
Pending pending(MPI_Request request, std::function<void()> then = {}) {
  return Pending([request, then = std::move(then)]() mutable {
    MPI_CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (then) then();
  });
}

// Keeps memory for the parts of a sum, since new pages cost as much as the transfer. All communicators made from one
// world share it; trainer/step/process_memory.cpp plans it.
class Scratch {
 public:
  // Returns a tensor that is in use until the last copy of the pointer is destroyed.
  std::shared_ptr<const Tensor> tensor(DType dtype, int64_t numel) {
    const auto bytes = static_cast<size_t>(numel * size_of(dtype));
    auto fits = free_->lower_bound(bytes);
    if (fits == free_->end()) {
      if (!free_->empty()) free_->erase(std::prev(free_->end()));  // replace the largest
      fits = free_->emplace(bytes, std::make_unique_for_overwrite<std::byte[]>(bytes));
    }
    const auto block = std::make_shared<Blocks::node_type>(free_->extract(fits));
    return {new Tensor(block->mapped().get(), dtype, {numel}), [free = free_, block](Tensor* t) {
              delete t;
              free->insert(std::move(*block));
            }};
  }

 private:
  using Blocks = std::multimap<size_t, std::unique_ptr<std::byte[]>>;  // keyed by size
  std::shared_ptr<Blocks> free_ = std::make_shared<Blocks>();
};

// Divides elements into one part for each rank, in MPI's form; the first parts are the longer ones.
struct Division {
  explicit Division(const std::vector<int64_t>& parts) {
    int64_t begin = 0;
    for (const int64_t part : parts) {
      begins.push_back(mpi_count(begin));
      counts.push_back(mpi_count(part));
      begin += part;
    }
  }
  Division(int64_t n, int parts) {
    for (int r = 0; r < parts; r++) {
      begins.push_back(mpi_count(n / parts * r + std::min<int64_t>(r, n % parts)));
      counts.push_back(mpi_count(n / parts + (r < n % parts)));
    }
  }
  // Parts of `each` elements for some ranks, empty parts for the others.
  Division(Interval of, int64_t each, int ranks)
      : Division([&] {
          std::vector<int64_t> parts(static_cast<size_t>(ranks), 0);
          std::fill(parts.begin() + of.begin, parts.begin() + of.end, each);
          return parts;
        }()) {}
  std::vector<int> begins, counts;
};

// The CPU stream has finished all earlier work when a call arrives here, so transfers start at once.
class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::string name, int channel, MPI_Comm comm, std::shared_ptr<Scratch> scratch)
      : Communicator(std::move(name), channel, mpi_rank(comm), mpi_size(comm)),
        comm_(comm),
        scratch_(std::move(scratch)) {}
  ~MpiCommunicator() override { MPI_Comm_free(&comm_); }

 protected:
  std::unique_ptr<Communicator> do_split(std::string name, int channel, int color, int key) override {
    MPI_Comm part;
    MPI_CHECK(MPI_Comm_split(comm_, color, key, &part));
    return std::make_unique<MpiCommunicator>(std::move(name), channel, part, scratch_);
  }
  Pending do_all_gather(Stream&, Tensor out, Tensor in) override {
    const Tensor own = out.flat(rank() * in.numel(), (rank() + 1) * in.numel());
    const bool in_place = own.raw() == in.raw();
    MPI_Request request;
    MPI_CHECK(MPI_Iallgather(in_place ? MPI_IN_PLACE : in.raw(), mpi_count(in.numel()), datatype(in.dtype()), out.raw(),
                             mpi_count(in.numel()), datatype(out.dtype()), comm_, &request));
    return pending(request);
  }
  // Replaces MPI's own sums: Open MPI 4 and 5 send non-blocking ones through one rank, which takes 4 to 5 times as long
  // with 14 MB on each of 2 or 4 ranks.
  Pending do_reduce_scatter(Stream&, Tensor out, Tensor in) override {
    const auto parts = scratch_->tensor(in.dtype(), in.numel());
    return pending(exchange(*parts, in), [=] { combine_parts(out, *parts, Reduce::sum); });
  }
  Pending do_all_gather_of(Stream&, Interval of, Tensor out, Tensor in) override {
    const auto parts = std::make_shared<const Division>(of, in.numel(), size());
    const int mine = parts->counts[static_cast<size_t>(rank())];
    MPI_Request request;
    MPI_CHECK(MPI_Iallgatherv(in.raw(), mine, datatype(in.dtype()), out.raw(), parts->counts.data(),
                              parts->begins.data(), datatype(out.dtype()), comm_, &request));
    return pending(request, [parts] {});  // keeps them alive until then
  }
  // The same exchange, and the same order of sums, as for the whole.
  Pending do_reduce_scatter_to(Stream&, Interval of, Tensor out, Tensor in) override {
    const bool gets = of.begin <= rank() && rank() < of.end;
    const auto sent = std::make_shared<const Division>(of, out.numel(), size()),
               received = std::make_shared<const Division>(
                   std::vector<int64_t>(static_cast<size_t>(size()), gets ? out.numel() : 0));
    const auto parts = gets ? scratch_->tensor(in.dtype(), size() * out.numel()) : nullptr;
    static char nothing;
    MPI_Request request;
    MPI_CHECK(MPI_Ialltoallv(in.raw(), sent->counts.data(), sent->begins.data(), datatype(in.dtype()),
                             gets ? parts->raw() : &nothing, received->counts.data(), received->begins.data(),
                             datatype(in.dtype()), comm_, &request));
    return pending(request, [sent, received, parts, out] {
      if (parts) combine_parts(out, *parts, Reduce::sum);
    });
  }
  Pending do_all_reduce(Stream&, Tensor data, Reduce op) override {
    constexpr int64_t small = int64_t{1} << 16;  // bytes
    return size() == 2 || data.bytes() <= small ? combine_all(data, op) : combine_in_parts(data, op);
  }
  Pending do_all_to_all(Stream&, Tensor out, Tensor in) override { return pending(exchange(out, in)); }
  Pending do_all_to_all_of(Stream&, Tensor out, Tensor in, const AllToAllParts& parts) override {
    const auto sent = std::make_shared<const Division>(parts.sent),
               received = std::make_shared<const Division>(parts.received);
    // Open MPI takes equal addresses of both for MPI_IN_PLACE, and an empty tensor may have the address of the next
    // one.
    static char nothing[2];
    const void* const from = in.numel() > 0 ? in.raw() : &nothing[0];
    void* const to = out.numel() > 0 ? out.raw() : &nothing[1];
    MPI_Request request;
    MPI_CHECK(MPI_Ialltoallv(from, sent->counts.data(), sent->begins.data(), datatype(in.dtype()), to,
                             received->counts.data(), received->begins.data(), datatype(out.dtype()), comm_, &request));
    return pending(request, [sent, received] {});  // keeps them alive until then
  }
  Pending do_broadcast(Stream&, Tensor data, int root) override {
    MPI_Request request;
    MPI_CHECK(MPI_Ibcast(data.raw(), mpi_count(data.numel()), datatype(data.dtype()), root, comm_, &request));
    return pending(request);
  }
  Pending do_send(Stream&, Tensor data, int peer) override {
    MPI_Request request;
    MPI_CHECK(MPI_Isend(data.raw(), mpi_count(data.numel()), datatype(data.dtype()), peer, 0, comm_, &request));
    return pending(request);
  }
  Pending do_recv(Stream&, Tensor data, int peer) override {
    MPI_Request request;
    MPI_CHECK(MPI_Irecv(data.raw(), mpi_count(data.numel()), datatype(data.dtype()), peer, 0, comm_, &request));
    return pending(request);
  }
  void do_barrier() override { MPI_CHECK(MPI_Barrier(comm_)); }

 private:
  MPI_Request exchange(Tensor out, Tensor in) {
    MPI_Request request;
    const int each = mpi_count(in.numel() / size());
    MPI_CHECK(
        MPI_Ialltoall(in.raw(), each, datatype(in.dtype()), out.raw(), each, datatype(out.dtype()), comm_, &request));
    return request;
  }

  // Gathers all data on each rank, which then computes the whole sum.
  Pending combine_all(Tensor data, Reduce op) {
    const auto parts = scratch_->tensor(data.dtype(), size() * data.numel());
    const int count = mpi_count(data.numel());
    MPI_Request request;
    MPI_CHECK(MPI_Iallgather(data.raw(), count, datatype(data.dtype()), parts->raw(), count, datatype(data.dtype()),
                             comm_, &request));
    return pending(request, [=] { combine_parts(data, *parts, op); });
  }

  // Sums one part on each rank; waiting for the first transfer gathers these parts.
  Pending combine_in_parts(Tensor data, Reduce op) {
    const auto cut = std::make_shared<const Division>(data.numel(), size());
    const auto mine = static_cast<size_t>(rank());
    const int count = cut->counts[mine];
    const auto each = std::make_shared<const Division>(int64_t{count} * size(), size());
    const auto parts = scratch_->tensor(data.dtype(), int64_t{count} * size());
    const MPI_Datatype type = datatype(data.dtype());
    MPI_Request request;
    MPI_CHECK(MPI_Ialltoallv(data.raw(), cut->counts.data(), cut->begins.data(), type, parts->raw(),
                             each->counts.data(), each->begins.data(), type, comm_, &request));
    return pending(request, [comm = comm_, type, data, op, cut, each, parts, mine, count] {
      combine_parts(data.flat(cut->begins[mine], cut->begins[mine] + count), *parts, op);
      MPI_Request gather;
      MPI_CHECK(MPI_Iallgatherv(MPI_IN_PLACE, 0, type, data.raw(), cut->counts.data(), cut->begins.data(), type, comm,
                                &gather));
      MPI_CHECK(MPI_Wait(&gather, MPI_STATUS_IGNORE));
    });
  }

  MPI_Comm comm_;
  std::shared_ptr<Scratch> scratch_;
};

}  // namespace

std::unique_ptr<Communicator> host_world(const Session& session) {
  session.require_mpi();
  int initialized = 0;
  MPI_CHECK(MPI_Initialized(&initialized));
  if (!initialized) return self_communicator("world");
  MPI_Comm copy;
  {
    const InCall in_call(session.recorded(), Transfer::connect);
    MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
  }
  auto world = std::make_unique<MpiCommunicator>("world", -1, copy, std::make_shared<Scratch>());
  if (const RecordedGroup* ranks = session.recorded()) world->record_in(ranks->recorder(), ranks->recorder().next_id());
  return world;
}

}  // namespace megalith
