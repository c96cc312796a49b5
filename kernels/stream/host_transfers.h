// Copies between the GPU of a stream and the host without the host waiting. Data that the host itself writes or reads
// goes through pinned buffers, which are reused. Allocating pinned memory can make streams wait for each other (CUDA
// programming guide, implicit synchronization), so the first few MiB are allocated in the constructor.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "kernels/stream/device.h"
#include "kernels/stream/pending.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

class HostTransfers {
 public:
  using Fill = std::function<void(std::span<const Tensor> host)>;
  using Read = std::function<void(Tensor host)>;
  using Idle = std::function<void()>;

  explicit HostTransfers(CUstream_st* stream);

  // Calls fill() now with host tensors of the same shapes; their contents are then copied in the stream's order.
  void upload(std::span<const Tensor> to, const Fill& fill);
  // Passes the contents of `from`, as of this point in the stream's order, to read() later. Returns a number.
  int64_t download(Tensor from, Read read);
  // Waits on the host for this download, and reads it and all earlier ones. Calls `idle` repeatedly while it waits.
  void receive(int64_t download, const Idle& idle);
  // Copies on a queue that overlaps with the stream. The Pending's wait() orders the stream after the copy. One side is
  // pinned memory.
  Pending copy_async(Tensor to, Tensor from);
  // Waits on the host for all work of the stream, and reads all downloads.
  void synchronize(const Idle& idle);

 private:
  struct Buffer {
    device::Memory own;  // empty if the buffer is in the pool
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

  // Returns a buffer that no copy uses any more.
  size_t take(int64_t bytes);

  CUstream_st* stream_;
  device::OwnedStream copy_stream_;  // created with the first copy
  device::OwnedEvent end_;
  device::Memory pool_;
  int64_t pool_used_ = 0;  // bytes
  std::vector<Buffer> buffers_;
  std::deque<Download> downloads_;  // unread, the last one being number num_downloads_ - 1
  int64_t num_downloads_ = 0;
};

}  // namespace megalith
