#include "trainer/runtime/mpi.h"

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <limits>

namespace megalith {

namespace {

void mpi_check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  FAIL("{} failed: {}", call, text);
}
#define MPI_CHECK(call) mpi_check(call, #call)

MPI_Datatype datatype(DType dtype) {
  switch (dtype) {
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::i32: return MPI_INT32_T;
    default: return MPI_UINT16_T;  // bf16 travels as bits
  }
}

int count(int64_t n) {
  CHECK(n <= std::numeric_limits<int>::max(), "a message of {} elements is larger than MPI counts; use more ranks", n);
  return static_cast<int>(n);
}

Pending pending(MPI_Request request) {
  return Pending([request]() mutable { MPI_CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE)); });
}

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_CHECK(MPI_Comm_rank(comm, &rank));
  return rank;
}
int size_of_group(MPI_Comm comm) {
  int size = 0;
  MPI_CHECK(MPI_Comm_size(comm, &size));
  return size;
}

bfloat16 sum(bfloat16 a, bfloat16 b) { return bfloat16(static_cast<float>(a) + static_cast<float>(b)); }
bfloat16 max(bfloat16 a, bfloat16 b) { return static_cast<float>(a) > static_cast<float>(b) ? a : b; }

template <bfloat16 (*combine)(bfloat16, bfloat16)>
void combine_bf16(void* in, void* inout, int* length, MPI_Datatype*) {
  const auto* a = static_cast<const bfloat16*>(in);
  auto* b = static_cast<bfloat16*>(inout);
  for (int i = 0; i < *length; i++) b[i] = combine(a[i], b[i]);
}

}  // namespace

// The session and its communicators share it; MPI wants it freed before the end.
class ReduceBf16 {
 public:
  ReduceBf16() {
    MPI_CHECK(MPI_Op_create(&combine_bf16<megalith::sum>, 1, &sum_));
    MPI_CHECK(MPI_Op_create(&combine_bf16<megalith::max>, 1, &max_));
  }
  ~ReduceBf16() {
    MPI_Op_free(&sum_);
    MPI_Op_free(&max_);
  }
  ReduceBf16(const ReduceBf16&) = delete;
  ReduceBf16& operator=(const ReduceBf16&) = delete;

  MPI_Op sum() const { return sum_; }
  MPI_Op max() const { return max_; }

 private:
  MPI_Op sum_, max_;
};

namespace {

// The CPU stream has run everything by the time a call arrives here, so transfers only have to start.
class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::string name, int channel, MPI_Comm comm, std::shared_ptr<const ReduceBf16> reduce_bf16)
      : Communicator(std::move(name), channel, rank_in(comm), size_of_group(comm)),
        comm_(comm),
        reduce_bf16_(std::move(reduce_bf16)) {}
  ~MpiCommunicator() override { MPI_Comm_free(&comm_); }

  std::unique_ptr<Communicator> split(std::string name, int channel, int color, int key) override {
    MPI_Comm part;
    MPI_CHECK(MPI_Comm_split(comm_, color, key, &part));
    return std::make_unique<MpiCommunicator>(std::move(name), channel, part, reduce_bf16_);
  }

 protected:
  Pending do_all_gather(Stream&, Tensor out, Tensor in) override {
    const Tensor own = out.flat(rank() * in.numel(), (rank() + 1) * in.numel());
    const bool in_place = own.raw() == in.raw();
    MPI_Request request;
    MPI_CHECK(MPI_Iallgather(in_place ? MPI_IN_PLACE : in.raw(), count(in.numel()), datatype(in.dtype()), out.raw(),
                             count(in.numel()), datatype(out.dtype()), comm_, &request));
    return pending(request);
  }
  Pending do_reduce_scatter(Stream&, Tensor out, Tensor in) override {
    MPI_Request request;
    MPI_CHECK(MPI_Ireduce_scatter_block(in.raw(), out.raw(), count(out.numel()), datatype(out.dtype()),
                                        op_of(out.dtype(), Reduce::sum), comm_, &request));
    return pending(request);
  }
  Pending do_all_reduce(Stream&, Tensor data, Reduce op) override {
    MPI_Request request;
    MPI_CHECK(MPI_Iallreduce(MPI_IN_PLACE, data.raw(), count(data.numel()), datatype(data.dtype()),
                             op_of(data.dtype(), op), comm_, &request));
    return pending(request);
  }
  Pending do_broadcast(Stream&, Tensor data, int root) override {
    MPI_Request request;
    MPI_CHECK(MPI_Ibcast(data.raw(), count(data.numel()), datatype(data.dtype()), root, comm_, &request));
    return pending(request);
  }
  Pending do_send(Stream&, Tensor data, int peer) override {
    MPI_Request request;
    MPI_CHECK(MPI_Isend(data.raw(), count(data.numel()), datatype(data.dtype()), peer, 0, comm_, &request));
    return pending(request);
  }
  Pending do_recv(Stream&, Tensor data, int peer) override {
    MPI_Request request;
    MPI_CHECK(MPI_Irecv(data.raw(), count(data.numel()), datatype(data.dtype()), peer, 0, comm_, &request));
    return pending(request);
  }
  void do_barrier() override { MPI_CHECK(MPI_Barrier(comm_)); }

 private:
  MPI_Op op_of(DType dtype, Reduce op) const {
    if (dtype == DType::bf16) return op == Reduce::sum ? reduce_bf16_->sum() : reduce_bf16_->max();
    return op == Reduce::sum ? MPI_SUM : MPI_MAX;
  }

  MPI_Comm comm_;
  std::shared_ptr<const ReduceBf16> reduce_bf16_;
};

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  // Ranks may outnumber cores: a rank that waits gives its core away.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  int provided = 0;
  MPI_CHECK(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
  MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  rank_ = rank_in(MPI_COMM_WORLD);
  size_ = size_of_group(MPI_COMM_WORLD);
  MPI_Comm node;
  MPI_CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  node_rank_ = rank_in(node);
  node_size_ = size_of_group(node);
  MPI_CHECK(MPI_Comm_free(&node));
  reduce_bf16_ = std::make_shared<ReduceBf16>();
}

MpiSession::~MpiSession() {
  reduce_bf16_.reset();
  MPI_Finalize();
}

std::unique_ptr<Communicator> MpiSession::world() const {
  MPI_Comm copy;
  MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
  return std::make_unique<MpiCommunicator>("world", -1, copy, reduce_bf16_);
}

std::vector<std::string> MpiSession::all_gather_text(const std::string& mine) const {
  const int length = count(static_cast<int64_t>(mine.size()));
  const auto ranks = static_cast<size_t>(size_);
  std::vector<int> lengths(ranks), offsets(ranks);
  MPI_CHECK(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD));
  int64_t total = 0;
  for (size_t r = 0; r < ranks; r++) {
    offsets[r] = count(total);
    total += lengths[r];
  }
  std::string all(static_cast<size_t>(total), '\0');
  MPI_CHECK(MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(), MPI_CHAR,
                           MPI_COMM_WORLD));
  std::vector<std::string> texts;
  for (size_t r = 0; r < ranks; r++)
    texts.push_back(all.substr(static_cast<size_t>(offsets[r]), static_cast<size_t>(lengths[r])));
  return texts;
}

std::string MpiSession::broadcast_text(const std::string& text) const {
  int length = count(static_cast<int64_t>(text.size()));
  MPI_CHECK(MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD));
  std::string copy = text;
  copy.resize(static_cast<size_t>(length));
  MPI_CHECK(MPI_Bcast(copy.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD));
  return copy;
}

void MpiSession::abort(int status) const {
  int main_thread = 0;
  MPI_Is_thread_main(&main_thread);
  if (main_thread) MPI_Abort(MPI_COMM_WORLD, status);
  // Other threads may not ask; mpirun ends the job when a rank ends like this.
  std::fflush(nullptr);
  std::_Exit(status);
}

}  // namespace megalith
