// NCCL on the simulated GPU of tests/simt, over MPI: what trainer/communication/nccl_present.cpp finds when it opens
// the library. It is as strict as the interface allows: a transfer holds its stream until it is over, one of a
// communicator begins when those before it are over, and a message is over when its other end has taken it. So what
// could wait for ever on GPUs waits for ever here.
//
// MPI and device memory do not meet: MPI works whenever it is called, and the host may not touch device memory then.
#include "tests/simulated_nccl/nccl.h"

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/simt/simt.h"
#include "tests/simulated_nccl/faults.h"
#include "tests/simulated_nccl/sums.h"
#include "tests/simulated_nccl/windows.h"

using namespace megalith;
using simulated_nccl::combine;
using simulated_nccl::Placement;
using simulated_nccl::size_of;

struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;  // null: alone
  int rank = 0, size = 1;
  int64_t begun = 0, over = 0;  // transfers
  std::set<int> peers;          // that a message has gone to or come from
  simulated_nccl::Windows windows;
  std::atomic<bool> misplaced = false;  // a transfer had its tensors elsewhere on another rank
};

namespace {

constexpr const char* id_text = "simulated";

simulated_nccl::Faults& faults() {
  static simulated_nccl::Faults the_ones;
  return the_ones;
}

// As NCCL does, before the first communicator of a job.
void read_environment() {
  const auto number = [](const char* name) {
    const char* value = std::getenv(name);
    return value ? std::atoi(value) : -1;
  };
  faults().nvls_enable = number("NCCL_NVLS_ENABLE");
  faults().runtime_connect = number("NCCL_RUNTIME_CONNECT");
  faults().cta_policy = number("NCCL_CTA_POLICY");
}

ncclResult_t refused() {
  faults().window_errors++;
  return ncclInvalidUsage;
}

// NCCL takes memory for messages between two ranks when the first of them is enqueued.
void connect(ncclComm_t comm, int peer) {
  if (comm->peers.insert(peer).second) faults().connected++;
}

// A call with which something is wrong by order of a test.
ncclResult_t called() {
  if (faults().block_calls)
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  return faults().fail_calls ? ncclInternalError : ncclSuccess;
}

// Every transfer is made of this: bytes are read from the device, MPI moves them, and what has come is written back.
struct Transfer {
  std::vector<char> sent, come;
  MPI_Request request = MPI_REQUEST_NULL;
  bool begun = false;
  std::vector<Placement> placements{};  // of all ranks, once `placed` is over
  MPI_Request placed = MPI_REQUEST_NULL;
};

// Ranks tell one another where their tensors lie: all of them where one has windows.
void exchange(Transfer& t, const Placement& mine, ncclComm_t comm) {
  t.placements.assign(static_cast<size_t>(comm->size), mine);
  MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, t.placements.data(), static_cast<int>(mine.size()), MPI_INT64_T,
                 comm->mpi, &t.placed);
}
void compare(const Transfer& t, ncclComm_t comm) {
  if (std::ranges::all_of(t.placements, [&](const Placement& p) { return p == t.placements.front(); })) return;
  faults().misplaced++;
  comm->misplaced = true;
}

template <class Begin, class End>
ncclResult_t enqueue(ncclComm_t comm, cudaStream_t stream, const void* in, size_t in_bytes, size_t come_bytes,
                     const std::optional<Placement>& where, Begin begin, End end) {
  if (const ncclResult_t wrong = called()) return wrong;
  const int64_t turn = comm->begun++;
  faults().enqueued++;
  auto t = std::make_shared<Transfer>();
  simt::submit_attempts(stream, [=] {
    if (comm->over != turn || faults().hold_transfers) return false;
    if (!t->begun) {
      t->begun = true;
      if (in) simt::reads_by_library(in, static_cast<int64_t>(in_bytes));
      t->sent.resize(in_bytes);
      t->come.resize(come_bytes);
      if (in) std::memcpy(t->sent.data(), in, in_bytes);
      if (comm->mpi == MPI_COMM_NULL) {
        t->come = t->sent;
      } else {
        if (where) exchange(*t, *where, comm);
        begin(*t);
      }
    }
    int done = 1;
    for (MPI_Request* request : {&t->placed, &t->request})
      if (comm->mpi != MPI_COMM_NULL && done) MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (!done) return false;
    compare(*t, comm);
    end(*t);
    comm->over++;
    return true;
  });
  return ncclSuccess;
}

void put(void* out, const char* bytes, size_t n) {
  simt::writes_by_library(out, static_cast<int64_t>(n));
  std::memcpy(out, bytes, n);
}

// Every rank has all inputs and adds them in the order of the ranks; it keeps `part` of the sum, if that is not empty.
ncclResult_t reduce(const void* in, void* out, size_t bytes, size_t part_begin, size_t part_bytes, ncclDataType_t type,
                    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const bool in_place = out == static_cast<const char*>(in) + part_begin;
  return enqueue(
      comm, stream, in, bytes, bytes * static_cast<size_t>(comm->size),
      comm->windows.of(in, bytes, in_place ? in : out, in_place ? bytes : part_bytes),
      [=](Transfer& t) {
        MPI_Iallgather(t.sent.data(), static_cast<int>(bytes), MPI_BYTE, t.come.data(), static_cast<int>(bytes),
                       MPI_BYTE, comm->mpi, &t.request);
      },
      [=](Transfer& t) {
        std::vector<char> sum(t.come.begin(), t.come.begin() + static_cast<std::ptrdiff_t>(bytes));
        for (size_t r = 1; r < static_cast<size_t>(comm->size); r++) combine(sum, t.come.data() + r * bytes, type, op);
        if (part_bytes > 0) put(out, sum.data() + part_begin, part_bytes);
      });
}

// Messages that begin and are over together; of one communicator, on one stream.
struct Message {
  ncclComm_t comm;
  cudaStream_t stream;
  const void* from;  // null: is received
  void* to;
  size_t bytes;
  int peer;
};
struct Group {
  bool open = false;
  std::vector<Message> messages;
};
Group& group() {
  static Group the_one;
  return the_one;
}

ncclResult_t enqueue_group(const std::vector<Message>& messages) {
  if (messages.empty()) return ncclSuccess;
  ncclComm_t comm = messages.front().comm;
  for (const Message& m : messages)
    if (m.comm != comm || m.stream != messages.front().stream) return ncclInvalidUsage;
  const int64_t turn = comm->begun++;
  faults().enqueued++;
  auto transfers = std::make_shared<std::vector<Transfer>>(messages.size());
  simt::submit_attempts(messages.front().stream, [=] {
    if (comm->over != turn || faults().hold_transfers) return false;
    const bool alone = comm->mpi == MPI_COMM_NULL;  // then what is sent is what is received next
    int all = 1;
    for (size_t i = 0; i < messages.size(); i++) {
      const Message& m = messages[i];
      Transfer& t = (*transfers)[i];
      const auto bytes = static_cast<int>(m.bytes);
      if (!t.begun && m.from) {
        simt::reads_by_library(m.from, static_cast<int64_t>(m.bytes));
        t.sent.assign(static_cast<const char*>(m.from), static_cast<const char*>(m.from) + m.bytes);
        if (!alone) MPI_Issend(t.sent.data(), bytes, MPI_BYTE, m.peer, 0, comm->mpi, &t.request);
      } else if (!t.begun) {
        t.come.resize(m.bytes);
        if (alone) t.come = (*transfers)[i - 1].sent;
        if (!alone) MPI_Irecv(t.come.data(), bytes, MPI_BYTE, m.peer, 0, comm->mpi, &t.request);
      }
      t.begun = true;
      int done = 1;
      if (!alone) MPI_Test(&t.request, &done, MPI_STATUS_IGNORE);
      all = all && done;
    }
    if (!all) return false;
    for (size_t i = 0; i < messages.size(); i++)
      if (!messages[i].from) put(messages[i].to, (*transfers)[i].come.data(), messages[i].bytes);
    comm->over++;
    return true;
  });
  return ncclSuccess;
}

}  // namespace

extern "C" {

simulated_nccl::Faults* simulated_nccl_faults() { return &faults(); }

ncclResult_t ncclGetVersion(int* version) {
  *version = faults().version;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  read_environment();
  std::strncpy(id->internal, id_text, sizeof id->internal);
  return called();
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (std::strcmp(id.internal, id_text) != 0 || config->blocking != 1) return ncclInvalidArgument;
  if (const ncclResult_t wrong = called()) return wrong;
  if (rank != 0) read_environment();
  faults().max_ctas = config->maxCTAs;
  *comm = new ncclComm;
  (*comm)->rank = rank;
  (*comm)->size = size;
  if (size > 1) MPI_Comm_dup(MPI_COMM_WORLD, &(*comm)->mpi);
  return ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
  if (config->blocking != 1) return ncclInvalidArgument;
  if (const ncclResult_t wrong = called()) return wrong;
  faults().max_ctas = config->maxCTAs;
  *part = new ncclComm;
  if (comm->mpi == MPI_COMM_NULL) return ncclSuccess;
  MPI_Comm_split(comm->mpi, color, key, &(*part)->mpi);
  MPI_Comm_rank((*part)->mpi, &(*part)->rank);
  MPI_Comm_size((*part)->mpi, &(*part)->size);
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->begun != comm->over) return ncclInvalidUsage;  // NCCL would wait for them; the caller should have
  if (comm->windows.any()) return refused();
  if (comm->mpi != MPI_COMM_NULL) MPI_Comm_free(&comm->mpi);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = faults().report_error ? ncclRemoteError : comm->misplaced ? ncclInvalidUsage : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  if (result == ncclInvalidUsage) return "invalid usage";
  if (result == ncclInvalidArgument) return "invalid argument";
  return result == ncclRemoteError ? "remote error" : result == ncclInternalError ? "internal error" : "other error";
}
const char* ncclGetLastError(ncclComm_t) { return "by order of the test"; }

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * size_of(type), all = bytes * static_cast<size_t>(comm->size);
  const bool in_place = in == static_cast<const char*>(out) + static_cast<size_t>(comm->rank) * bytes;
  return enqueue(
      comm, stream, in, bytes, all, comm->windows.of(in_place ? out : in, bytes, out, all),
      [=](Transfer& t) {
        MPI_Iallgather(t.sent.data(), static_cast<int>(bytes), MPI_BYTE, t.come.data(), static_cast<int>(bytes),
                       MPI_BYTE, comm->mpi, &t.request);
      },
      [=](Transfer& t) { put(out, t.come.data(), all); });
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  return reduce(in, out, bytes * static_cast<size_t>(comm->size), bytes * static_cast<size_t>(comm->rank), bytes, type,
                op, comm, stream);
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  return reduce(in, out, bytes, 0, bytes, type, op, comm, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  return enqueue(
      comm, stream, comm->rank == root ? in : nullptr, bytes, 0, comm->windows.of(in, bytes, out, bytes),
      [=](Transfer& t) { MPI_Ibcast(t.sent.data(), static_cast<int>(bytes), MPI_BYTE, root, comm->mpi, &t.request); },
      [=](Transfer& t) { put(out, t.sent.data(), bytes); });
}
// In a group as well these begin one after another, where NCCL may run them together.
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  return reduce(in, out, bytes, 0, comm->rank == root ? bytes : 0, type, op, comm, stream);
}
ncclResult_t ncclAlltoAll(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  const size_t each = count * size_of(type), all = each * static_cast<size_t>(comm->size);
  faults().exchanges++;
  return enqueue(
      comm, stream, in, all, all, comm->windows.of(in, all, out, all),
      [=](Transfer& t) {
        MPI_Ialltoall(t.sent.data(), static_cast<int>(each), MPI_BYTE, t.come.data(), static_cast<int>(each), MPI_BYTE,
                      comm->mpi, &t.request);
      },
      [=](Transfer& t) { put(out, t.come.data(), all); });
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, size_t bytes, ncclWindow_t* window, int flags) {
  if (const ncclResult_t wrong = called()) return wrong;
  return comm->begun == comm->over ? comm->windows.add(comm->mpi, memory, bytes, flags, window) : refused();
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return comm->begun == comm->over ? comm->windows.remove(window) : refused();
}
ncclResult_t ncclGroupStart() {
  group().open = true;
  return called();
}
ncclResult_t ncclGroupEnd() {
  const Group ended = std::exchange(group(), {});
  const ncclResult_t wrong = called();
  return wrong ? wrong : enqueue_group(ended.messages);
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  connect(comm, peer);
  comm->windows.of(data, bytes, nullptr, 0);
  if (group().open) {
    group().messages.push_back({comm, stream, data, nullptr, bytes, peer});
    return called();
  }
  return enqueue(
      comm, stream, data, bytes, 0, {},
      [=](Transfer& t) {
        MPI_Issend(t.sent.data(), static_cast<int>(bytes), MPI_BYTE, peer, 0, comm->mpi, &t.request);
      },
      [](Transfer&) {});
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  connect(comm, peer);
  comm->windows.of(data, bytes, nullptr, 0);
  if (group().open) {
    group().messages.push_back({comm, stream, nullptr, data, bytes, peer});
    return called();
  }
  return enqueue(
      comm, stream, nullptr, 0, bytes, {},
      [=](Transfer& t) { MPI_Irecv(t.come.data(), static_cast<int>(bytes), MPI_BYTE, peer, 0, comm->mpi, &t.request); },
      [=](Transfer& t) { put(data, t.come.data(), bytes); });
}

}  // extern "C"
