#include "trainer/communication/mpi.h"

#include "trainer/session/mpi_check.h"

namespace megalith {

namespace {

MPI_Datatype datatype(DType dtype) {
  switch (dtype) {
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::i32: return MPI_INT32_T;
    default: return MPI_UINT16_T;  // 16-bit types travel as bits
  }
}

Pending pending(MPI_Request request) {
  return Pending([request]() mutable { MPI_CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE)); });
}

template <class T>
T sum(T a, T b) {
  return T(static_cast<float>(a) + static_cast<float>(b));
}
template <class T>
T max(T a, T b) {
  return static_cast<float>(a) > static_cast<float>(b) ? a : b;
}

template <class T, T (*combine)(T, T)>
void combine_all(void* in, void* inout, int* length, MPI_Datatype*) {
  const auto* a = static_cast<const T*>(in);
  auto* b = static_cast<T*>(inout);
  for (int i = 0; i < *length; i++) b[i] = combine(a[i], b[i]);
}

// MPI's operators for a 16-bit type.
template <class T>
class Operators {
 public:
  Operators() {
    MPI_CHECK(MPI_Op_create(&combine_all<T, megalith::sum<T>>, 1, &sum_));
    MPI_CHECK(MPI_Op_create(&combine_all<T, megalith::max<T>>, 1, &max_));
  }
  ~Operators() {
    MPI_Op_free(&sum_);
    MPI_Op_free(&max_);
  }
  Operators(const Operators&) = delete;
  Operators& operator=(const Operators&) = delete;

  MPI_Op of(Reduce op) const { return op == Reduce::sum ? sum_ : max_; }

 private:
  MPI_Op sum_, max_;
};
// All communicators made from one world share them; MPI wants them freed before MPI_Finalize.
struct Operators16 {
  Operators<bfloat16> bf16;
  Operators<float16> f16;
};

// The CPU stream has run everything by the time a call arrives here, so transfers only have to start.
class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::string name, int channel, MPI_Comm comm, std::shared_ptr<const Operators16> operators)
      : Communicator(std::move(name), channel, mpi_rank(comm), mpi_size(comm)),
        comm_(comm),
        operators_(std::move(operators)) {}
  ~MpiCommunicator() override { MPI_Comm_free(&comm_); }

 protected:
  std::unique_ptr<Communicator> do_split(std::string name, int channel, int color, int key) override {
    MPI_Comm part;
    MPI_CHECK(MPI_Comm_split(comm_, color, key, &part));
    return std::make_unique<MpiCommunicator>(std::move(name), channel, part, operators_);
  }
  Pending do_all_gather(Stream&, Tensor out, Tensor in) override {
    const Tensor own = out.flat(rank() * in.numel(), (rank() + 1) * in.numel());
    const bool in_place = own.raw() == in.raw();
    MPI_Request request;
    MPI_CHECK(MPI_Iallgather(in_place ? MPI_IN_PLACE : in.raw(), mpi_count(in.numel()), datatype(in.dtype()), out.raw(),
                             mpi_count(in.numel()), datatype(out.dtype()), comm_, &request));
    return pending(request);
  }
  Pending do_reduce_scatter(Stream&, Tensor out, Tensor in) override {
    MPI_Request request;
    MPI_CHECK(MPI_Ireduce_scatter_block(in.raw(), out.raw(), mpi_count(out.numel()), datatype(out.dtype()),
                                        op_of(out.dtype(), Reduce::sum), comm_, &request));
    return pending(request);
  }
  Pending do_all_reduce(Stream&, Tensor data, Reduce op) override {
    MPI_Request request;
    MPI_CHECK(MPI_Iallreduce(MPI_IN_PLACE, data.raw(), mpi_count(data.numel()), datatype(data.dtype()),
                             op_of(data.dtype(), op), comm_, &request));
    return pending(request);
  }
  Pending do_all_to_all(Stream&, Tensor out, Tensor in) override {
    MPI_Request request;
    const int each = mpi_count(in.numel() / size());
    MPI_CHECK(
        MPI_Ialltoall(in.raw(), each, datatype(in.dtype()), out.raw(), each, datatype(out.dtype()), comm_, &request));
    return pending(request);
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
  MPI_Op op_of(DType dtype, Reduce op) const {
    if (dtype == DType::bf16) return operators_->bf16.of(op);
    if (dtype == DType::f16) return operators_->f16.of(op);
    return op == Reduce::sum ? MPI_SUM : MPI_MAX;
  }

  MPI_Comm comm_;
  std::shared_ptr<const Operators16> operators_;
};

}  // namespace

std::unique_ptr<Communicator> host_world(const Session& session) {
  session.require_mpi();
  int initialized = 0;
  MPI_CHECK(MPI_Initialized(&initialized));
  if (!initialized) return self_communicator("world");
  MPI_Comm copy;
  {
    const InCall in_call(session.calls(), Call::connect);
    MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
  }
  auto world = std::make_unique<MpiCommunicator>("world", -1, copy, std::make_shared<Operators16>());
  if (const CallGroup* calls = session.calls()) world->keep_calls(calls->ring(), calls->ring().next_id());
  return world;
}

}  // namespace megalith
