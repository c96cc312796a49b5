#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "kernels/device.h"
#include "trainer/runtime/mesh.h"
#include "trainer/runtime/nccl.h"

namespace megalith {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The functions of the library, found at run time.
class Library {
 public:
  Library() {
    constexpr const char* file = "libnccl.so.2";
    void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);  // for the life of the process
    CHECK(handle, "cannot open NCCL: {}; install it, or add its folder to LD_LIBRARY_PATH", dlerror());
    const auto find = [&](auto& function, const char* name) {
      void* address = dlsym(handle, name);
      CHECK(address, "{} has no {}; it is too old, install NCCL {}.{} or newer", file, name, NCCL_MAJOR, NCCL_MINOR);
      std::memcpy(&function, &address, sizeof(function));
    };
    find(get_unique_id, "ncclGetUniqueId");
    find(init_rank, "ncclCommInitRankConfig");
    find(split, "ncclCommSplit");
    find(destroy, "ncclCommDestroy");
    find(abort, "ncclCommAbort");
    find(async_error, "ncclCommGetAsyncError");
    find(count, "ncclCommCount");
    find(user_rank, "ncclCommUserRank");
    find(error_string, "ncclGetErrorString");
    find(last_error, "ncclGetLastError");
    find(all_gather, "ncclAllGather");
    find(reduce_scatter, "ncclReduceScatter");
    find(all_reduce, "ncclAllReduce");
    find(broadcast, "ncclBroadcast");
    find(send, "ncclSend");
    find(recv, "ncclRecv");
  }

  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init_rank;
  decltype(&ncclCommSplit) split;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommCount) count;
  decltype(&ncclCommUserRank) user_rank;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
};

ncclDataType_t datatype(DType type) {
  switch (type) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::i32: return ncclInt32;
    default: return ncclBfloat16;
  }
}
ncclRedOp_t op_of(Reduce op) { return op == Reduce::sum ? ncclSum : ncclMax; }
size_t count(const Tensor& t) { return static_cast<size_t>(t.numel()); }

// A transfer that was enqueued.
struct Flight {
  device::OwnedEvent over = device::make_event();
  std::string channel;
  const char* operation = nullptr;
};

}  // namespace

struct NcclSession::Shared {
  Library library;
  NcclOptions options;
  int rank;

  struct Member {
    ncclComm_t comm;
    std::string name;
  };
  std::vector<Member> members;  // all communicators alive
  std::deque<std::shared_ptr<Flight>> flights;
  std::vector<std::shared_ptr<Flight>> landed;  // to be used again
  Clock::time_point progress = Clock::now(), checked = progress;

  Shared(const Session& session, NcclOptions o) : options(o), rank(session.rank()) {}

  void verify(ncclResult_t result, const std::string& channel, const char* operation) {
    if (result == ncclSuccess) return;
    const std::string error = library.error_string(result), detail = library.last_error(nullptr);
    give_up();
    FAIL("rank {}: {}: NCCL's {} failed: {}{}{}; NCCL_DEBUG=WARN tells more", rank, channel, operation, error,
         detail.empty() ? "" : ": ", detail);
  }

  ncclConfig_t config() const {
    ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
    c.blocking = 1;
    if (options.max_ctas > 0) c.maxCTAs = options.max_ctas;
    return c;
  }

  ncclComm_t add(ncclComm_t comm, const std::string& name) {
    members.push_back({comm, name});
    return comm;
  }
  void remove(ncclComm_t comm) {
    const auto at = std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.comm == comm; });
    if (at == members.end()) return;  // given up
    members.erase(at);
    // A process on its way out of an error must not wait for the others.
    std::uncaught_exceptions() > 0 ? library.abort(comm) : library.destroy(comm);
  }
  void give_up() {
    for (const Member& m : members) library.abort(m.comm);
    members.clear();
    flights.clear();
  }

  std::shared_ptr<Flight> enqueued(const std::string& channel, const char* operation, CUstream_st* stream) {
    land();
    std::shared_ptr<Flight> flight;
    if (landed.empty()) {
      flight = std::make_shared<Flight>();
    } else {
      flight = std::move(landed.back());
      landed.pop_back();
    }
    flight->channel = channel;
    flight->operation = operation;
    device::record(flight->over.get(), stream);
    if (flights.empty()) progress = Clock::now();
    flights.push_back(flight);
    return flight;
  }
  // Takes those off the list that have ended.
  void land() {
    while (!flights.empty() && device::passed(flights.front()->over.get())) {
      if (flights.front().use_count() == 1) landed.push_back(flights.front());
      flights.pop_front();
      progress = Clock::now();
    }
  }

  void check() {
    if (seconds_since(checked) < 0.2) return;
    checked = Clock::now();
    land();
    const std::string operation = flights.empty() ? "no transfer under way"
                                                  : fmt::format("the oldest transfer under way is {} of {}",
                                                                flights.front()->operation, flights.front()->channel);
    for (const Member& m : members) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = library.async_error(m.comm, &state);
      if (asked == ncclSuccess && (state == ncclSuccess || state == ncclInProgress)) continue;
      const std::string name = m.name, error = library.error_string(asked == ncclSuccess ? state : asked),
                        detail = library.last_error(m.comm);
      give_up();
      FAIL("rank {}: {}: NCCL failed: {}: {} ({}); has another rank or a link died?", rank, name, error, detail,
           operation);
    }
    if (!flights.empty() && seconds_since(progress) > options.timeout) {
      give_up();
      FAIL("rank {}: no transfer has ended for {:.0f} seconds: {}; has another rank died, or does it wait elsewhere?",
           rank, options.timeout, operation);
    }
  }
};

namespace {

class NcclCommunicator : public Communicator {
 public:
  using Shared = std::shared_ptr<NcclSession::Shared>;

  // Takes `comm`, which `shared` knows already.
  NcclCommunicator(std::string name, int channel, Shared shared, ncclComm_t comm)
      : Communicator(std::move(name), channel, rank_in(*shared, comm), size_of(*shared, comm)),
        shared_(std::move(shared)),
        on_compute_(channel == static_cast<int>(Channel::tensor)) {
    add_line(comm);
    const bool pipeline =
        channel == static_cast<int>(Channel::forward) || channel == static_cast<int>(Channel::backward);
    // Edges of a ring, so that no two at one rank have the same colour: two colours, three where the ring is odd.
    for (int colours = pipeline && size() > 1 ? (size() % 2 == 0 ? 2 : 3) : 1; num_lines() < colours;)
      add_line(part_of(comm, 0, rank(), this->name()));
  }
  ~NcclCommunicator() override {
    for (Line& line : lines_) shared_->remove(line.comm);
  }

  std::unique_ptr<Communicator> split(std::string name, int channel, int color, int key) override {
    ncclComm_t part = part_of(lines_.front().comm, color, key, name);
    return std::make_unique<NcclCommunicator>(std::move(name), channel, shared_, part);
  }

 protected:
  Pending do_all_gather(Stream& s, Tensor out, Tensor in) override {
    return begin(s, "all_gather", lines_.front(), [&](ncclComm_t comm, CUstream_st* on) {
      return shared_->library.all_gather(in.raw(), out.raw(), count(in), datatype(in.dtype()), comm, on);
    });
  }
  Pending do_reduce_scatter(Stream& s, Tensor out, Tensor in) override {
    return begin(s, "reduce_scatter", lines_.front(), [&](ncclComm_t comm, CUstream_st* on) {
      return shared_->library.reduce_scatter(in.raw(), out.raw(), count(out), datatype(in.dtype()), ncclSum, comm, on);
    });
  }
  Pending do_all_reduce(Stream& s, Tensor data, Reduce op) override {
    return begin(s, "all_reduce", lines_.front(), [&](ncclComm_t comm, CUstream_st* on) {
      return shared_->library.all_reduce(data.raw(), data.raw(), count(data), datatype(data.dtype()), op_of(op), comm,
                                         on);
    });
  }
  Pending do_broadcast(Stream& s, Tensor data, int root) override {
    return begin(s, "broadcast", lines_.front(), [&](ncclComm_t comm, CUstream_st* on) {
      return shared_->library.broadcast(data.raw(), data.raw(), count(data), datatype(data.dtype()), root, comm, on);
    });
  }
  Pending do_send(Stream& s, Tensor data, int peer) override {
    return begin(s, "send", line_between(rank(), peer), [&](ncclComm_t comm, CUstream_st* on) {
      return shared_->library.send(data.raw(), count(data), datatype(data.dtype()), peer, comm, on);
    });
  }
  Pending do_recv(Stream& s, Tensor data, int peer) override {
    return begin(s, "recv", line_between(peer, rank()), [&](ncclComm_t comm, CUstream_st* on) {
      return shared_->library.recv(data.raw(), count(data), datatype(data.dtype()), peer, comm, on);
    });
  }
  void do_barrier() override {
    Line& line = lines_.front();
    shared_->verify(
        shared_->library.all_reduce(token_.get(), token_.get(), 1, ncclInt32, ncclMax, line.comm, line.stream.get()),
        name(), "barrier");
    const auto flight = shared_->enqueued(name(), "barrier", line.stream.get());
    while (!device::passed(flight->over.get())) {
      shared_->check();
      std::this_thread::yield();
    }
  }

 private:
  struct Line {
    ncclComm_t comm;
    device::OwnedStream stream;
    device::OwnedEvent ready;
  };

  static int rank_in(NcclSession::Shared& shared, ncclComm_t comm) {
    int rank = 0;
    shared.verify(shared.library.user_rank(comm, &rank), "communicator", "ncclCommUserRank");
    return rank;
  }
  static int size_of(NcclSession::Shared& shared, ncclComm_t comm) {
    int size = 0;
    shared.verify(shared.library.count(comm, &size), "communicator", "ncclCommCount");
    return size;
  }

  ncclComm_t part_of(ncclComm_t comm, int color, int key, const std::string& name) {
    ncclComm_t part = nullptr;
    ncclConfig_t config = shared_->config();
    shared_->verify(shared_->library.split(comm, color, key, &part, &config), name, "ncclCommSplit");
    return shared_->add(part, name);
  }
  void add_line(ncclComm_t comm) { lines_.push_back({comm, device::make_stream(true), device::make_event()}); }
  int num_lines() const { return static_cast<int>(lines_.size()); }

  // Edge e of the ring joins e and e + 1.
  Line& line_between(int from, int to) {
    if (num_lines() == 1) return lines_.front();
    const bool forward = channel() == static_cast<int>(Channel::forward);
    const int edge = forward ? from : to;
    CHECK((edge + 1) % size() == (forward ? to : from),
          "{}: a message from {} to {} of {}; only neighbours have a line", name(), from, to, size());
    return lines_[static_cast<size_t>(num_lines() == 3 && edge == size() - 1 ? 2 : edge % 2)];
  }

  template <class Call>
  Pending begin(Stream& s, const char* operation, Line& line, Call call) {
    const device::Range range(operation);
    CUstream_st* compute = s.queue().stream;
    CUstream_st* on = on_compute_ ? compute : line.stream.get();
    if (on != compute) {
      device::record(line.ready.get(), compute);
      device::wait(on, line.ready.get());
    }
    shared_->verify(call(line.comm, on), name(), operation);
    const auto flight = shared_->enqueued(name(), operation, on);
    if (on == compute) return {};
    return Pending([flight, compute] { device::wait(compute, flight->over.get()); });
  }

  Shared shared_;
  bool on_compute_;
  std::vector<Line> lines_;
  device::Memory token_ = device::allocate(sizeof(int32_t), "barriers");
};

}  // namespace

NcclSession::NcclSession(const Session& session, NcclOptions options)
    : session_(session), shared_(std::make_shared<Shared>(session, options)) {}
NcclSession::~NcclSession() = default;

std::unique_ptr<Communicator> NcclSession::world() const {
  ncclUniqueId id{};
  if (session_.rank() == 0) shared_->verify(shared_->library.get_unique_id(&id), "world", "ncclGetUniqueId");
  const std::string bytes = session_.broadcast_text(std::string(id.internal, sizeof(id.internal)));
  std::memcpy(id.internal, bytes.data(), sizeof(id.internal));
  ncclComm_t comm = nullptr;
  ncclConfig_t config = shared_->config();
  shared_->verify(shared_->library.init_rank(&comm, session_.size(), id, session_.rank(), &config), "world",
                  "ncclCommInitRankConfig");
  return std::make_unique<NcclCommunicator>("world", -1, shared_, shared_->add(comm, "world"));
}

void NcclSession::check() const { shared_->check(); }

}  // namespace megalith
