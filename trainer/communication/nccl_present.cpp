#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "kernels/stream/device.h"
#include "trainer/communication/mesh_shape.h"
#include "trainer/communication/nccl.h"
#include "trainer/communication/nccl_watch.h"

namespace megalith {

namespace {

ncclDataType_t nccl_type(DType type) {
  switch (type) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::i32: return ncclInt32;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    default: return ncclUint8;
  }
}
ncclRedOp_t op_of(Reduce op) { return op == Reduce::sum ? ncclSum : ncclMax; }
size_t count(const Tensor& t) { return static_cast<size_t>(t.numel()); }

bool is_pipeline(int channel) { return direction_of(static_cast<Channel>(channel)) != 0; }

// A message holds its thread blocks while it waits for its peer, and with NVLink NCCL gives each up to 32. Four carry
// 56 GB/s between nodes by NCCL's own count (14 each, src/graph/paths.cc), more than a 400 Gbit/s adapter. The world's
// communicator carries only a few numbers, and NCCL allocates about 30 MB for each block of a communicator.
constexpr int few_ctas = 4;
constexpr int no_channel = -1;  // marks the communicator that all others are split from
bool takes_few(int channel) {
  return is_pipeline(channel) || channel == static_cast<int>(Channel::world) || channel == no_channel;
}

// NCCL reads its variables once, in its first call.
void set_environment(const NcclOptions& options) {
  if (!options.nvls) setenv("NCCL_NVLS_ENABLE", "0", 1);
  // NCCL_CTA_POLICY_ZERO, which headers before 2.28 lack.
  if (options.symmetric_memory == SymmetricMemory::copy_engines) setenv("NCCL_CTA_POLICY", "2", 1);
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
}

}  // namespace

struct NcclSession::Shared {
  NcclLibrary library;
  const NcclOptions options;
  NcclWatch watch;

  Shared(const Session& session, const NcclOptions& o) : library(o.library), options(o), watch(session, library) {
    library.check_has(options.symmetric_memory);
    set_environment(options);
  }
  bool has_copy_engines() const { return options.symmetric_memory == SymmetricMemory::copy_engines; }

  ncclConfig_t config(int channel) const {
    ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
    c.blocking = 1;
    if (options.max_ctas > 0)
      c.maxCTAs = options.max_ctas;
    else if (takes_few(channel))
      c.maxCTAs = few_ctas;
    return c;
  }

  template <class F>
  void call(const std::string& channel, const char* operation, F f) {
    watch.check();
    library.check(f(), channel, operation);
  }
};

namespace {

using Shared = std::shared_ptr<NcclSession::Shared>;

class CommWithStream {
 public:
  CommWithStream(Shared shared, const std::string& channel, ncclComm_t comm)
      : shared_(std::move(shared)), stream_(device::make_stream(true)), ready_(device::make_event()) {
    comm_.comm = comm;
    comm_.channel = channel;
    shared_->watch.add(comm_);
  }
  ~CommWithStream() {
    shared_->watch.remove(comm_);
    // ncclCommDestroy waits for the other ranks, which may be gone.
    if (std::uncaught_exceptions() > 0 || shared_->watch.has_error()) return;
    try {
      for (void* window : windows_)
        shared_->call(comm_.channel, "ncclCommWindowDeregister",
                      [&] { return shared_->library.deregister_window(comm_.comm, window); });
      shared_->call(comm_.channel, "ncclCommDestroy", [&] { return shared_->library.destroy(comm_.comm); });
    } catch (const Error&) {
    }
  }
  CommWithStream(const CommWithStream&) = delete;
  CommWithStream& operator=(const CommWithStream&) = delete;

  // Collective. NCCL makes no window if GPUs cannot access one another's memory.
  void add_window(void* memory, int64_t bytes) {
    void* window = nullptr;
    shared_->call(comm_.channel, "ncclCommWindowRegister", [&] {
      return shared_->library.register_window(comm_.comm, memory, static_cast<size_t>(bytes), &window,
                                              NcclLibrary::symmetric_window);
    });
    if (window) windows_.push_back(window);
  }
  bool has_windows() const { return !windows_.empty(); }

  ncclComm_t comm() const { return comm_.comm; }
  CUstream_st* stream() const { return stream_.get(); }

  // Enqueues on this stream, after the work of `compute`, or on `compute` itself; `call` records its begin and end.
  template <class F>
  std::shared_ptr<EnqueuedTransfer> enqueue(CUstream_st* compute, bool on_compute, const char* operation,
                                            const RecordedCall& call, F f) {
    const device::Range range(operation);
    CUstream_st* on = on_compute ? compute : stream_.get();
    if (on != compute) {
      device::record(ready_.get(), compute);
      device::wait(on, ready_.get());
    }
    std::shared_ptr<EnqueuedTransfer> transfer = shared_->watch.next_transfer(comm_, operation, call);
    device::record(transfer->begin.get(), on);
    shared_->call(comm_.channel, operation, [&] { return f(comm_.comm, on); });
    device::record(transfer->end.get(), on);
    shared_->watch.mark_enqueued(comm_, transfer);
    return transfer;
  }

 private:
  Shared shared_;
  TrackedComm comm_;
  std::vector<void*> windows_;
  device::OwnedStream stream_;
  device::OwnedEvent ready_;
};

class NcclCommunicator : public Communicator {
 public:
  // Takes ownership of `comm`.
  NcclCommunicator(std::string name, int channel, Shared shared, ncclComm_t comm)
      : Communicator(std::move(name), channel, rank_in(shared->library, comm), size_of(shared->library, comm)),
        shared_(std::move(shared)),
        on_compute_(channel == static_cast<int>(Channel::tensor)),
        forward_(direction_of(static_cast<Channel>(channel)) > 0),
        pipeline_(is_pipeline(channel)) {
    const int32_t zero = 0;
    add_comm(comm);
    device::copy(main_comm().stream(), token_.get(), &zero, sizeof zero);
    device::synchronize(main_comm().stream());
    if (pipeline_) connect_neighbours();
  }

 protected:
  std::unique_ptr<Communicator> do_split(std::string name, int channel, int color, int key) override {
    ncclComm_t part = part_of(color, key, name, channel);
    return std::make_unique<NcclCommunicator>(std::move(name), channel, shared_, part);
  }

  void do_connect_all_to_all() override {
    const device::Memory memory = device::allocate(2 * size() * int64_t{sizeof(int32_t)}, "first messages");
    const Tensor all(memory.get(), DType::i32, {2 * size()}), to = all.flat(0, size());
    const std::vector<int32_t> zeros(static_cast<size_t>(size()));
    device::copy(main_comm().stream(), to.raw(), zeros.data(), to.bytes());
    device::synchronize(main_comm().stream());
    pass_token(main_comm(), "first messages",
               [&](ncclComm_t comm, CUstream_st* on) { return exchange(all.flat(size(), 2 * size()), to, comm, on); });
  }

  // The first transfer by copy engines allocates memory for synchronization, and the host then waits for all members.
  void do_use_symmetric(void* memory, int64_t bytes) override {
    const bool gathers_first = shared_->has_copy_engines() && !main_comm().has_windows();
    main_comm().add_window(memory, bytes);
    const Tensor all(memory, DType::i32, {size()});
    if (!gathers_first || bytes < all.bytes()) return;
    const std::vector<int32_t> zeros(static_cast<size_t>(size()));
    device::copy(main_comm().stream(), all.raw(), zeros.data(), all.bytes());
    pass_token(main_comm(), "first gather", [&](ncclComm_t comm, CUstream_st* on) {
      return library().all_gather(all.flat(rank(), rank() + 1).raw(), all.raw(), 1, ncclInt32, comm, on);
    });
  }

  bool ends_unseen_by_host() const override { return true; }
  // A ring passes each member's part on at full rate, so all parts together take as long as one all_gather.
  Pending do_all_gather_of(Stream& s, Interval of, Tensor out, Tensor in) override {
    return begin(s, "all_gather_of", main_comm(), [&](ncclComm_t comm, CUstream_st* on) {
      return each_part(of, out, in.numel(), [&](const Tensor& part, int root) {
        return library().broadcast(in.raw(), part.raw(), count(part), nccl_type(part.dtype()), root, comm, on);
      });
    });
  }
  Pending do_reduce_scatter_to(Stream& s, Interval of, Tensor out, Tensor in) override {
    return begin(s, "reduce_scatter_to", main_comm(), [&](ncclComm_t comm, CUstream_st* on) {
      return each_part(of, in, out.numel(), [&](const Tensor& part, int root) {
        return library().reduce(part.raw(), out.raw(), count(part), nccl_type(part.dtype()), ncclSum, root, comm, on);
      });
    });
  }
  void run_overlapped() override { on_compute_ = false; }
  Pending do_all_gather(Stream& s, Tensor out, Tensor in) override {
    return begin(s, "all_gather", main_comm(), [&](ncclComm_t comm, CUstream_st* on) {
      return library().all_gather(in.raw(), out.raw(), count(in), nccl_type(in.dtype()), comm, on);
    });
  }
  Pending do_all_gather_behind(Stream& s, Tensor out, Tensor in, CUevent_st* after) override {
    device::wait(on_compute_ ? s.queue().stream : main_comm().stream(), after);
    return do_all_gather(s, out, in);
  }
  Pending do_reduce_scatter(Stream& s, Tensor out, Tensor in) override {
    return begin(s, "reduce_scatter", main_comm(), [&](ncclComm_t comm, CUstream_st* on) {
      return library().reduce_scatter(in.raw(), out.raw(), count(out), nccl_type(in.dtype()), ncclSum, comm, on);
    });
  }
  Pending do_all_reduce(Stream& s, Tensor data, Reduce op) override {
    return begin(s, "all_reduce", main_comm(), [&](ncclComm_t comm, CUstream_st* on) {
      return library().all_reduce(data.raw(), data.raw(), count(data), nccl_type(data.dtype()), op_of(op), comm, on);
    });
  }
  Pending do_all_to_all(Stream& s, Tensor out, Tensor in) override {
    return begin(s, "all_to_all", main_comm(), [&](ncclComm_t comm, CUstream_st* on) {
      if (!shared_->has_copy_engines()) return exchange(out, in, comm, on);
      const size_t each = count(in) / static_cast<size_t>(size());
      return library().all_to_all(in.raw(), out.raw(), each, nccl_type(in.dtype()), comm, on);
    });
  }
  Pending do_all_to_all_of(Stream& s, Tensor out, Tensor in, const AllToAllParts& parts) override {
    return begin(s, "all_to_all", main_comm(),
                 [&](ncclComm_t comm, CUstream_st* on) { return exchange(out, in, parts, comm, on); });
  }
  Pending do_broadcast(Stream& s, Tensor data, int root) override {
    return begin(s, "broadcast", main_comm(), [&](ncclComm_t comm, CUstream_st* on) {
      return library().broadcast(data.raw(), data.raw(), count(data), nccl_type(data.dtype()), root, comm, on);
    });
  }
  Pending do_send(Stream& s, Tensor data, int peer) override {
    return begin(s, "send", comm_between(rank(), peer), [&](ncclComm_t comm, CUstream_st* on) {
      return library().send(data.raw(), count(data), nccl_type(data.dtype()), peer, comm, on);
    });
  }
  Pending do_recv(Stream& s, Tensor data, int peer) override {
    return begin(s, "recv", comm_between(peer, rank()), [&](ncclComm_t comm, CUstream_st* on) {
      return library().recv(data.raw(), count(data), nccl_type(data.dtype()), peer, comm, on);
    });
  }
  void do_barrier() override {
    pass_token(main_comm(), "barrier", [&](ncclComm_t comm, CUstream_st* on) {
      return library().all_reduce(token_.get(), token_.get(), 1, ncclInt32, ncclMax, comm, on);
    });
  }

 private:
  static int rank_in(const NcclLibrary& nccl, ncclComm_t comm) {
    int rank = 0;
    nccl.check(nccl.user_rank(comm, &rank), "communicator", "ncclCommUserRank");
    return rank;
  }
  static int size_of(const NcclLibrary& nccl, ncclComm_t comm) {
    int size = 0;
    nccl.check(nccl.count(comm, &size), "communicator", "ncclCommCount");
    return size;
  }

  const NcclLibrary& library() const { return shared_->library; }

  // Calls transfer(part, member) for each member's part of `whole`, as one NCCL group.
  template <class F>
  ncclResult_t each_part(Interval of, const Tensor& whole, int64_t each, F transfer) const {
    ncclResult_t result = library().group_start();
    for (int64_t i = 0; i < of.size() && result == ncclSuccess; i++)
      result = transfer(whole.flat(i * each, (i + 1) * each), static_cast<int>(of.begin + i));
    const ncclResult_t end = library().group_end();
    return result == ncclSuccess ? end : result;
  }
  ncclResult_t exchange(Tensor out, Tensor in, ncclComm_t comm, CUstream_st* on) const {
    const std::vector<int64_t> each(static_cast<size_t>(size()), in.numel() / size());
    return exchange(out, in, {.sent = each, .received = each}, comm, on);
  }
  // Exchanges messages with every member, itself included, as one NCCL group. Empty messages are not sent.
  ncclResult_t exchange(Tensor out, Tensor in, const AllToAllParts& parts, ncclComm_t comm, CUstream_st* on) const {
    ncclResult_t result = library().group_start();
    int64_t sent = 0, received = 0;
    for (int r = 0; r < size() && result == ncclSuccess; r++) {
      const auto other = static_cast<size_t>(r);
      const Tensor to = in.flat(sent, sent + parts.sent[other]),
                   from = out.flat(received, received + parts.received[other]);
      sent += to.numel();
      received += from.numel();
      if (to.numel() > 0) result = library().send(to.raw(), count(to), nccl_type(to.dtype()), r, comm, on);
      if (result == ncclSuccess && from.numel() > 0)
        result = library().recv(from.raw(), count(from), nccl_type(from.dtype()), r, comm, on);
    }
    const ncclResult_t end = library().group_end();
    return result == ncclSuccess ? end : result;
  }

  ncclComm_t part_of(int color, int key, const std::string& of, int for_channel) {
    ncclComm_t part = nullptr;
    ncclConfig_t config = shared_->config(for_channel);
    shared_->call(of, "ncclCommSplit", [&] { return library().split(main_comm().comm(), color, key, &part, &config); });
    return part;
  }
  void add_comm(ncclComm_t comm) { comms_.push_back(std::make_unique<CommWithStream>(shared_, name(), comm)); }
  CommWithStream& main_comm() const { return *comms_.front(); }

  // Edge e of the ring joins e and e + 1. The two edges of a rank use different communicators: two suffice for an even
  // ring, three for an odd one.
  CommWithStream& comm_of_edge(int edge) const {
    const bool last_of_odd = size() % 2 == 1 && edge == size() - 1;
    return *comms_[static_cast<size_t>(last_of_odd ? 2 : edge % 2)];
  }
  CommWithStream& comm_between(int from, int to) {
    if (!pipeline_ || size() == 1) return main_comm();
    const int edge = forward_ ? from : to;
    CHECK((edge + 1) % size() == (forward_ ? to : from),
          "{}: a message from {} to {} of {}; messages go from neighbour to neighbour, in the channel's direction",
          name(), from, to, size());
    return comm_of_edge(edge);
  }
  void connect_neighbours() {
    if (size() == 1) return;
    for (int comms = size() % 2 == 0 ? 2 : 3, i = 1; i < comms; i++) add_comm(part_of(0, rank(), name(), channel()));
    for (int first : {0, 1})
      for (int edge = first; edge < size(); edge += 2) {
        const int next = (edge + 1) % size(), from = forward_ ? edge : next, to = forward_ ? next : edge;
        if (rank() != from && rank() != to) continue;
        pass_token(comm_of_edge(edge), "first message", [&](ncclComm_t comm, CUstream_st* on) {
          return rank() == from ? library().send(token_.get(), 1, ncclInt32, to, comm, on)
                                : library().recv(token_.get(), 1, ncclInt32, from, comm, on);
        });
      }
  }

  template <class F>
  Pending begin(Stream& s, const char* operation, CommWithStream& comm, F f) {
    CUstream_st* compute = s.queue().stream;
    const std::shared_ptr<EnqueuedTransfer> transfer =
        comm.enqueue(compute, on_compute_, operation, recorded_call(), f);
    if (on_compute_) return {};
    return Pending([transfer, compute] { device::wait(compute, transfer->end.get()); }, transfer->end.get());
  }
  // Blocks the host until the transfer is complete.
  template <class F>
  void pass_token(CommWithStream& comm, const char* operation, F f) {
    const std::shared_ptr<EnqueuedTransfer> transfer = comm.enqueue(comm.stream(), true, operation, {}, f);
    while (!device::passed(transfer->end.get())) {
      shared_->watch.check();
      std::this_thread::yield();
    }
  }

  Shared shared_;
  bool on_compute_, forward_, pipeline_;
  device::Memory token_ = device::allocate(sizeof(int32_t), "barriers");
  std::vector<std::unique_ptr<CommWithStream>> comms_;
};

}  // namespace

NcclSession::NcclSession(const Session& session, NcclOptions options)
    : session_(session), shared_(std::make_shared<Shared>(session, options)) {}
NcclSession::~NcclSession() = default;

std::string nccl_version(const std::string& library) { return NcclLibrary(library).version(); }

std::unique_ptr<Communicator> NcclSession::world() const {
  const NcclLibrary& library = shared_->library;
  ncclUniqueId id{};
  if (session_.rank() == 0) shared_->call("world", "ncclGetUniqueId", [&] { return library.get_unique_id(&id); });
  const std::string bytes = session_.broadcast_text(std::string(id.internal, sizeof(id.internal)));
  std::memcpy(id.internal, bytes.data(), sizeof(id.internal));
  ncclComm_t comm = nullptr;
  ncclConfig_t config = shared_->config(no_channel);
  std::unique_ptr<Communicator> all;
  {
    const InCall in_call(session_.recorded(), Transfer::connect);
    shared_->call("world", "ncclCommInitRankConfig",
                  [&] { return library.init_rank(&comm, session_.size(), id, session_.rank(), &config); });
    all = std::make_unique<NcclCommunicator>("world", no_channel, shared_, comm);
  }
  if (const RecordedGroup* ranks = session_.recorded()) all->record_in(ranks->recorder(), ranks->recorder().next_id());
  return all;
}

device::Memory NcclSession::allocate(int64_t bytes, const std::string& what) const {
  return shared_->library.allocate(bytes, what);
}

void NcclSession::check() const { shared_->watch.check(); }
std::string NcclSession::version() const { return shared_->library.version(); }

}  // namespace megalith
