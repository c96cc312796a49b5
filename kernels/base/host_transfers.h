// Copies between the GPU of a stream and the host, without the host waiting. What the host itself writes or reads goes
// through pinned memory, which is allocated once and reused when the copies from or to it are over. Allocating some can
// make streams wait for each other (CUDA programming guide, implicit synchronization), so the first few MiB are
// allocated in the constructor.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/pending.h"
#include "kernels/base/tensor.h"

namespace megalith {

class HostTransfers {
 public:
  using Fill = std::function<void(std::span<const Tensor> host)>;
  using Read = std::function<void(Tensor host)>;
  using Idle = std::function<void()>;

  explicit HostTransfers(CUstream_st* stream);

  // fill() writes host tensors of the same shapes, now; what it wrote is then copied in the stream's order.
  void upload(std::span<const Tensor> to, const Fill& fill);
  // What `from` holds at this place of the stream's order will be shown to read(). Returns its number.
  int64_t download(Tensor from, Read read);
  // The host waits for the download of this number, and reads it and those before. `idle` is called over and over
  // while it waits.
  void receive(int64_t download, const Idle& idle);
  // On a queue beside the stream, which the Pending's wait() orders after the copy; one of them in pinned memory.
  Pending copy_beside(Tensor to, Tensor from);
  // The host waits for all that the stream was given, and reads.
  void synchronize(const Idle& idle);

 private:
  struct Buffer {
    device::Memory own;  // none where it lies in the pool
    void* memory = nullptr;
    int64_t bytes = 0;
    device::OwnedEvent over;
    bool unread = false;
  };
  struct Download {
    size_t buffer;
    Tensor host;
    Read read;
  };

  // A buffer that nothing comes from or goes to any more.
  size_t take(int64_t bytes);

  CUstream_st* stream_;
  device::OwnedStream beside_;  // from the first copy on
  device::OwnedEvent end_;
  device::Memory pool_;
  int64_t pool_used_ = 0;  // bytes
  std::vector<Buffer> buffers_;
  std::deque<Download> downloads_;  // unread, the last one being number num_downloads_ - 1
  int64_t num_downloads_ = 0;
};

}  // namespace megalith
