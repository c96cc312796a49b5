#include "kernels/stream/host_transfers.h"

#include <thread>
#include <utility>

namespace megalith {

namespace {
constexpr int64_t alignment = 256, pool_bytes = int64_t{4} << 20;
constexpr const char* purpose = "copies between host and GPU";
int64_t padded(const Tensor& t) { return t.empty() ? 0 : (t.bytes() + alignment - 1) / alignment * alignment; }

void wait_for(CUevent_st* event, const HostTransfers::Idle& idle) {
  while (!device::passed(event)) {
    if (idle) idle();
    std::this_thread::yield();
  }
}
}  // namespace

HostTransfers::HostTransfers(CUstream_st* stream)
    : stream_(stream), end_(device::make_event()), pool_(device::allocate_pinned(pool_bytes, purpose)) {}

size_t HostTransfers::take(int64_t bytes) {
  for (size_t i = 0; i < buffers_.size(); i++) {
    const Buffer& b = buffers_[i];
    if (!b.unread && b.bytes >= bytes && device::passed(b.over.get())) return i;
  }
  Buffer added{.own = nullptr, .bytes = bytes, .over = device::make_event()};
  if (bytes <= pool_bytes - pool_used_) {
    added.memory = static_cast<char*>(pool_.get()) + pool_used_;
    pool_used_ += bytes;
  } else {
    added.own = device::allocate_pinned(bytes, purpose);
    added.memory = added.own.get();
  }
  buffers_.push_back(std::move(added));
  return buffers_.size() - 1;
}

void HostTransfers::upload(std::span<const Tensor> to, const Fill& fill) {
  int64_t bytes = 0;
  for (const Tensor& t : to) bytes += padded(t);
  Buffer& buffer = buffers_[take(bytes)];
  std::vector<Tensor> host;
  auto* at = static_cast<char*>(buffer.memory);
  for (const Tensor& t : to) {
    host.push_back(t.empty() ? t : Tensor(at, t.dtype(), t.shape()));
    at += padded(t);
  }
  fill(host);
  for (size_t i = 0; i < to.size(); i++)
    if (!to[i].empty()) device::copy(stream_, to[i].raw(), host[i].raw(), to[i].bytes());
  device::record(buffer.over.get(), stream_);
}

int64_t HostTransfers::download(Tensor from, Read read) {
  const size_t i = take(padded(from));
  Buffer& buffer = buffers_[i];
  const Tensor host(buffer.memory, from.dtype(), from.shape());
  device::copy(stream_, host.raw(), from.raw(), from.bytes());
  device::record(buffer.over.get(), stream_);
  buffer.unread = true;
  downloads_.push_back({i, host, std::move(read)});
  return num_downloads_++;
}

void HostTransfers::receive(int64_t download, const Idle& idle) {
  while (num_downloads_ - static_cast<int64_t>(downloads_.size()) <= download) {
    wait_for(buffers_[downloads_.front().buffer].over.get(), idle);
    const Download arrived = std::move(downloads_.front());
    downloads_.pop_front();
    arrived.read(arrived.host);
    buffers_[arrived.buffer].unread = false;
  }
}

Pending HostTransfers::copy_async(Tensor to, Tensor from) {
  if (!copy_stream_) copy_stream_ = device::make_stream(false);
  const std::shared_ptr<CUevent_st> place = device::make_event();  // recorded in the stream, then in the copy queue
  device::record(place.get(), stream_);
  device::wait(copy_stream_.get(), place.get());
  device::copy(copy_stream_.get(), to.raw(), from.raw(), from.bytes());
  device::record(place.get(), copy_stream_.get());
  return Pending([place, stream = stream_] { device::wait(stream, place.get()); }, place.get());
}

void HostTransfers::synchronize(const Idle& idle) {
  device::record(end_.get(), stream_);
  wait_for(end_.get(), idle);
  receive(num_downloads_ - 1, idle);
}

}  // namespace megalith
