#include "kernels/stream/stream.h"

#include <cstring>

#include "kernels/stream/arena.h"
#include "kernels/stream/host_transfers.h"

namespace megalith {

Stream::Stream(World world, cuda::Queue queue) : world_(world), queue_(queue) {
  CHECK(has_cuda || world_ != World::cuda, "this build has no CUDA; use run.device = cpu, or the preset cuda");
}
Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;

HostTransfers& Stream::transfers() {
  if (!transfers_) transfers_ = std::make_unique<HostTransfers>(queue_.stream);
  return *transfers_;
}

void Stream::upload(const char* name, std::initializer_list<Tensor> to,
                    const std::function<void(std::span<const Tensor>)>& fill) {
  double bytes = 0;
  for (const Tensor& t : to)
    if (!t.empty()) bytes += bytes_of(t);
  const std::span<const Tensor> tensors(to.begin(), to.size());
  launch(name, {.bytes = bytes, .kind = Cost::Kind::input}, to, [&] {
    if (world_ == World::cuda) return transfers().upload(tensors, fill);
    fill(tensors);
  });
}

Stream::Ticket Stream::download(const char* name, Tensor from, std::function<void(Tensor)> read) {
  Ticket ticket = 0;
  launch(name, {.bytes = static_cast<double>(from.bytes())}, {}, [&] {
    if (world_ == World::cuda)
      ticket = transfers().download(from, std::move(read));
    else
      read(from);
  });
  return ticket;
}

void Stream::receive(Ticket download) {
  if (world_ == World::cuda) transfers().receive(download, idle_);
}

Pending Stream::copy_async(Transfer direction, Tensor to, Tensor from) {
  CHECK(to.numel() == from.numel() && to.dtype() == from.dtype(), "{}: {} {} are copied to {} {}", name_of(direction),
        from.numel(), name_of(from.dtype()), to.numel(), name_of(to.dtype()));
  const bool to_host = direction == Transfer::to_host;
  CHECK(world_ != World::dry || (in_dry_host_arena(to) == to_host && in_dry_host_arena(from) != to_host),
        "{}: one tensor must be in an arena of the device and one in an arena of the host, for this direction",
        name_of(direction));
  return Pending::traced(*trace_, host_channel, direction, -1, from.bytes(), [&] {
    if (world_ == World::cuda) return transfers().copy_async(to, from);
    if (world_ == World::dry) return Pending();
    return Pending([=] { std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes())); });
  });
}

void Stream::synchronize() {
  if (world_ != World::cuda) return;
  transfers().synchronize(idle_);
  if (timer_) timer_->collect([&](const char* name, double seconds) { record_of(name).seconds += seconds; });
}

void Stream::time_ops() {
  if (world_ == World::cuda && !timer_) timer_ = std::make_unique<OpTimer>(queue_.stream);
}

OpRecord& Stream::record_of(const char* name) {
  for (OpRecord& record : log_)
    if (record.name == name) return record;
  return log_.emplace_back(OpRecord{.name = name});
}

}  // namespace megalith
