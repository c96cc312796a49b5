// The GPU of the machine of simt.h, for kernels/stream/device.h: one, whose work is done as late and in as odd an order
// as streams and events allow. Nothing runs when it is enqueued. When the host asks for an event or waits, work of the
// streams is done piece by piece, each from a stream drawn at random among those that may go on, of which one is left
// behind for a while, until the host has
// what it asked for; so what is not ordered by an event, and memory that is written or freed too early, gives wrong
// numbers. While a stream exists the host may not touch device memory. Only the thread that makes streams makes work go
// on; others may ask for events.
#include "kernels/stream/device.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "kernels/system/check.h"
#include "tests/simt/simt.h"

namespace {
// The times an event was recorded: how often that was enqueued, and how often the stream came to it.
struct Recorded {
  std::atomic<int64_t> enqueued = 0, passed = 0;
  std::chrono::steady_clock::time_point at;  // of the last pass
};
struct Item {
  std::function<bool()> work;       // whether it is done
  std::shared_ptr<Recorded> event;  // recorded or waited for instead of work
  bool wait = false;
  int64_t count = 0;  // of the event
};
}  // namespace

// What was submitted to a stream while it was captured, with its arguments; what it is given again each time that the
// graph is launched, so that an argument that ought to be another by then is the old one, and shows in the results.
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};
struct CUstream_st {
  std::deque<Item> items;
  std::unique_ptr<CUgraphExec_st> captured;  // while it is
};
struct CUevent_st {
  std::shared_ptr<Recorded> recorded = std::make_shared<Recorded>();
};

namespace megalith::simt {
namespace {

struct Device {
  std::vector<CUstream_st*> streams;
  std::map<uintptr_t, uintptr_t> pinned;  // begin, end
  uint32_t random = 1;
  const CUstream_st* behind = nullptr;  // goes on where no other stream does, for so many pieces of work
  uint32_t for_pieces = 0;
  std::thread::id host;
};
Device& device() {
  static Device the_one;
  return the_one;
}

bool may_go_on(const CUstream_st& s) {
  if (s.items.empty()) return false;
  const Item& first = s.items.front();
  return !first.wait || first.event->passed >= first.count;
}

// One item of some stream.
void advance() {
  Device& d = device();
  std::vector<CUstream_st*> able;
  for (CUstream_st* s : d.streams)
    if (may_go_on(*s)) able.push_back(s);
  CHECK(!able.empty(), "the streams of the simulated device wait for one another");
  d.random = d.random * 1664525u + 1013904223u;
  if (d.for_pieces-- == 0) {
    d.for_pieces = (d.random >> 8) % 1024;
    d.behind = d.streams[(d.random >> 20) % d.streams.size()];
  }
  if (able.size() > 1) std::erase(able, d.behind);
  CUstream_st& s = *able[(d.random >> 16) % able.size()];
  Item item = std::move(s.items.front());
  s.items.pop_front();
  if (item.work) {
    bool done = false;
    open_to_host(true);
    try {
      done = item.work();
    } catch (...) {
      open_to_host(false);
      throw;
    }
    open_to_host(false);
    if (done) return;
    s.items.push_front(std::move(item));
    std::this_thread::yield();
  } else if (!item.wait) {
    item.event->passed = item.count;
    item.event->at = std::chrono::steady_clock::now();
  }
}

bool is_pinned(const void* p) {
  const auto& pinned = device().pinned;
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto after = pinned.upper_bound(address);
  return after != pinned.begin() && address < std::prev(after)->second;
}

void expect_no_capture(const CUstream_st* stream, const char* what) {
  CHECK(!stream->captured, "{} on a stream of the simulated device that is being captured", what);
}

void enqueue(CUstream_st* stream, Item item) {
  expect_no_capture(stream, item.work ? "work other than kernels" : "an event");
  stream->items.push_back(std::move(item));
}
void expect_no_capture_at_all(const char* what) {
  for (const CUstream_st* s : device().streams) expect_no_capture(s, what);
}

}  // namespace

void submit(CUstream_st* stream, std::function<void()> work) {
  if (!stream) return work();
  if (stream->captured) return stream->captured->work.push_back(std::move(work));
  submit_attempts(stream, [work = std::move(work)] {
    work();
    return true;
  });
}

void submit_attempts(CUstream_st* stream, std::function<bool()> attempt) {
  enqueue(stream, {.work = std::move(attempt), .event = nullptr});
}

int64_t work_enqueued() {
  int64_t items = 0;
  for (const CUstream_st* s : device().streams) items += static_cast<int64_t>(s->items.size());
  return items;
}

}  // namespace megalith::simt

namespace megalith::device {

using simt::device;

bool in_build() { return true; }
std::string architectures() { return "none but the simulated GPU"; }
void expect_waiting_kernels() {}
int count() { return 1; }
std::string unusable(int index) {
  return simt::chip().major < 8 ? fmt::format("GPU {} is a simulated {}", index, simt::chip().name) : "";
}
void select(int index) { CHECK(index == 0, "the simulated machine has one GPU, not {}", index + 1); }
Properties properties() {
  return {.index = 0,
          .name = fmt::format("simulated {}", simt::chip().name),
          .major = simt::chip().major,
          .minor = simt::chip().minor,
          .processors = 1,
          .memory = int64_t{512} << 20,
          .free = (int64_t{512} << 20) - simt::used_bytes(),
          .shared_memory = simt::chip().shared_memory,
          .id = fmt::format("simulated for process {}", getpid()),
          .driver = "none",
          .runtime = "none"};
}

Link link(int, int) { return Link::none; }

Memory allocate(int64_t bytes, const std::string& what) {
  return Memory(simt::allocate(what, bytes, simt::Contents::unwritten), {simt::release});
}
Memory allocate_pinned(int64_t bytes, const std::string&) {
  void* p = ::operator new(static_cast<size_t>(bytes));
  const auto begin = reinterpret_cast<uintptr_t>(p);
  device().pinned[begin] = begin + static_cast<uintptr_t>(bytes);
  std::memset(p, 0xa5, static_cast<size_t>(bytes));
  return Memory(p, {[](void* memory) {
                  device().pinned.erase(reinterpret_cast<uintptr_t>(memory));
                  ::operator delete(memory);
                }});
}

OwnedStream make_stream(bool) {
  OwnedStream stream(new CUstream_st);
  device().host = std::this_thread::get_id();
  device().streams.push_back(stream.get());
  simt::open_to_host(false);
  return stream;
}
OwnedEvent make_event() { return OwnedEvent(new CUevent_st); }
OwnedEvent make_timed_event() { return make_event(); }
// What is still enqueued is dropped, as it is when a broken process ends; elsewhere the host has waited for it.
void Destroy::operator()(CUstream_st* stream) const noexcept {
  std::erase(device().streams, stream);
  simt::open_to_host(device().streams.empty());
  delete stream;
}
void Destroy::operator()(CUevent_st* event) const noexcept { delete event; }

void record(CUevent_st* event, CUstream_st* stream) {
  simt::enqueue(stream, {.work = {}, .event = event->recorded, .count = ++event->recorded->enqueued});
}
void wait(CUstream_st* stream, CUevent_st* event) {
  simt::enqueue(stream, {.work = {}, .event = event->recorded, .wait = true, .count = event->recorded->enqueued});
}

void Destroy::operator()(CUgraphExec_st* graph) const noexcept { delete graph; }
void begin_capture(CUstream_st* stream) {
  simt::expect_no_capture(stream, "a second capture");
  stream->captured = std::make_unique<CUgraphExec_st>();
}
OwnedGraph end_capture(CUstream_st* stream) {
  CHECK(stream->captured, "the end of a capture of a stream that is not being captured");
  return OwnedGraph(stream->captured.release());
}
void drop_capture(CUstream_st* stream) noexcept { stream->captured.reset(); }
void launch(CUstream_st* stream, CUgraphExec_st* graph) {
  simt::expect_no_capture(stream, "a graph");
  for (const auto& work : graph->work) simt::submit(stream, work);
}

bool passed(CUevent_st* event) {
  if (std::this_thread::get_id() == device().host) simt::expect_no_capture_at_all("the host asks for an event");
  const bool is = event->recorded->passed == event->recorded->enqueued;
  if (!is && std::this_thread::get_id() == device().host) simt::advance();
  return is;
}
double seconds_between(CUevent_st* begin, CUevent_st* end) {
  return std::chrono::duration<double>(end->recorded->at - begin->recorded->at).count();
}
void synchronize(CUstream_st* stream) {
  simt::expect_no_capture(stream, "the host waits");
  while (!stream->items.empty()) simt::advance();
}

void copy(CUstream_st* stream, void* to, const void* from, int64_t bytes) {
  simt::expect_no_capture(stream, "a copy");
  const auto is_common = [](const void* p) { return !simt::is_device_memory(p) && !simt::is_pinned(p); };
  const auto n = static_cast<size_t>(bytes);
  const bool to_pinned = simt::is_pinned(to), from_pinned = simt::is_pinned(from);
  std::shared_ptr<char[]> before;  // common memory is read before the call returns
  if (is_common(from)) {
    before = std::make_shared<char[]>(n);
    std::memcpy(before.get(), from, n);
  }
  simt::submit(stream, [=] {
    CHECK((!to_pinned || simt::is_pinned(to)) && (!from_pinned || simt::is_pinned(from)),
          "a copy of {} bytes from or to pinned memory that was released", bytes);
    if (simt::is_device_memory(from)) simt::reads_by_library(from, bytes);
    std::memcpy(to, before ? before.get() : from, n);
    if (simt::is_device_memory(to)) simt::writes_by_library(to, bytes);
  });
  if (is_common(to)) synchronize(stream);
}

Range::Range(const char*) noexcept {}
Range::~Range() = default;

}  // namespace megalith::device
